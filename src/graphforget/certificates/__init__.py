"""What can be claimed about unlearned weights: the mathematics of it."""
