"""Rows of a graph on several ranks: row ranges, shards on disk, exchange of boundary rows, sums in a fixed order."""
