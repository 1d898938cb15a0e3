"""Attacks on what a model gives away, and measurements of what it has forgotten."""
