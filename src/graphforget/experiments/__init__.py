"""The tables and figures of the paper, one file each, and tables that are not in the paper."""
