"""Pure mathematics of privacy on numbers and vectors."""
