"""Other services that requests come from, and that are told of results."""
