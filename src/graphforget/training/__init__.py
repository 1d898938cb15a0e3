"""What is minimised, and how: objective, losses, fit, train, retraining."""
