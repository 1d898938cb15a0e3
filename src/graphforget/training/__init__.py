"""The training objective, losses, and how models are trained and retrained."""
