"""Linear algebra of the approximate posteriors: pure functions of tensors, no parameters."""
