"""The tables and figures of the paper, one file each, and two tables that are not in the paper."""
