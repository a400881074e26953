"""Training and prediction with several processes."""
