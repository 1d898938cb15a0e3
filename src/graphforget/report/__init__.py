"""One page about one deletion, for people. Computes nothing: it shows what it is handed."""
