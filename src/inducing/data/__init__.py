"""Data: toy problems, the UCI regression sets, and image sets."""

from inducing.data import images, toy, uci

__all__ = ["images", "toy", "uci"]
