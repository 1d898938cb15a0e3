"""Long work: processes to work on, and results that are kept as they come."""
