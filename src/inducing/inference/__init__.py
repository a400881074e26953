"""Variational inference: the objective, and the loop that maximises it."""
