"""Run directories: a model, its graph and its ledger on disk."""
