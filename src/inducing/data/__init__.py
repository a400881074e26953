"""Data: the paper's toy problem and the UCI regression sets."""

from inducing.data import toy, uci

__all__ = ["toy", "uci"]
