"""Attacks on models, and measurements of how well a model has forgotten."""
