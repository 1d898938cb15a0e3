"""The paper's tables and figures, one file each, and two tables that it lacks. Knows nothing of the command line."""
