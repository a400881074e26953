"""Layers: Bayesian, residual, normalising, plain."""

from inducing.nn.layers.base import Layer, Part
from inducing.nn.layers.conv2d import Conv2d
from inducing.nn.layers.deterministic import Deterministic
from inducing.nn.layers.gp import GPLayer
from inducing.nn.layers.linear import Linear
from inducing.nn.layers.normalisation import InducingNorm
from inducing.nn.layers.parts import Parts
from inducing.nn.layers.residual import Residual

__all__ = ["Conv2d", "Deterministic", "GPLayer", "InducingNorm", "Layer", "Linear", "Part", "Parts", "Residual"]
