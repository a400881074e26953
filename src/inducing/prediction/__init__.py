"""Predictions of a fitted network, metrics, and plots."""
