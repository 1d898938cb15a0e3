"""Graphs by name, and from files of users."""
