"""Ensembles of models trained on shards of the graph."""
