"""Linear algebra on flat vectors and constant matrices. Knows nothing of graphs."""
