"""Ready-made networks."""

from inducing.nn.models.convolutional import lenet, resnet8, resnet18
from inducing.nn.models.dense import mlp
from inducing.nn.models.gaussian_processes import deep_gp

__all__ = ["deep_gp", "lenet", "mlp", "resnet8", "resnet18"]
