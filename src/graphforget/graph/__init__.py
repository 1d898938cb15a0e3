"""The graph: data, surgery on it, its digest, checks of what it may be made of."""
