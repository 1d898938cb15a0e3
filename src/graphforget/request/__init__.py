"""What to forget: requests, their files, random ones, and which training losses they change."""
