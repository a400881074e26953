"""The last layer given the layers below it: a Gaussian law, which new data update exactly."""

from inducing.nn.last_layer.covariance import Covariance
from inducing.nn.last_layer.draw import LastLayerDraw, draw_last_layer
from inducing.nn.last_layer.update import Update, evenly_spaced, noise_variance, sample_updated_functions, update

__all__ = [
    "Covariance",
    "LastLayerDraw",
    "Update",
    "draw_last_layer",
    "evenly_spaced",
    "noise_variance",
    "sample_updated_functions",
    "update",
]
