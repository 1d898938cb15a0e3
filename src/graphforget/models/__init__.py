"""Models: SGC, SIGN, GCN, GAT, GIN, any of them or a user's own linearised, and what kind of layers each has."""
