"""Graphs by name, and from files of one's own."""
