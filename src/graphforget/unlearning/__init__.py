"""One file for each method, behind one protocol."""
