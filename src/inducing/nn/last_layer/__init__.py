"""The last layer given the layers below it: a Gaussian law, which new data update exactly."""

from inducing.nn.last_layer.conditioning import MAX_INDUCING, Update, noise_variance, sample_updated_functions, update
from inducing.nn.last_layer.covariance import Covariance
from inducing.nn.last_layer.draw import LastLayerDraw, draw_last_layer

__all__ = [
    "MAX_INDUCING",
    "Covariance",
    "LastLayerDraw",
    "Update",
    "draw_last_layer",
    "noise_variance",
    "sample_updated_functions",
    "update",
]
