"""Long work in worker processes, with results that are stored as they come."""
