"""Models: SGC, SIGN, GCN, GAT, GIN, GraphSAGE, any of them or a user's own linearised, and their kinds of layers."""
