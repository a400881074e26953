"""Datasets: toy problems, UCI regression, and images."""

from inducing.data import images, toy, uci

__all__ = ["images", "toy", "uci"]
