"""What `verify` looks at: the claim, the noise, the ledger."""
