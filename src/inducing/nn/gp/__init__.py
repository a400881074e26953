"""Drawn functions of Gaussian processes."""
