"""Convolutional networks: the paper's LeNet and ResNet-8, and ResNet-18 with inducing points in every layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from torch import nn

from inducing.linalg.convolution.geometry import Boundary
from inducing.nn.context import Shape
from inducing.nn.layers import Conv2d, InducingNorm, Linear, Residual
from inducing.nn.models.assembly import InducingArguments, assemble, takes_inducing
from inducing.nn.network import Network
from inducing.nn.posteriors import Posterior, PosteriorOfLayers, posteriors_for_layers
from inducing.nn.priors import Prior


@takes_inducing
def lenet(
    input_shape: Shape = (1, 28, 28),
    out_features: int = 10,
    channels: int = 64,
    *,
    prior: Prior | str = "neal",
    posterior: PosteriorOfLayers = "global",
    boundary: Boundary = "circular",
    normalise: bool = False,
    **inducing: Unpack[InducingArguments],
) -> Network:
    """The paper's network for MNIST: two blocks of conv2d-relu-maxpool, then conv2d-relu-linear; 4 layers with weights.

    The arguments for inducing points, here images, are those of `inducing.models.mlp`.

    Arguments:
        input_shape: Channels, height and width of an image; at least 4 x 4 pixels.
        out_features: Number of classes.
        channels: Channels of every convolution.
        prior: A prior or its name.
        posterior: A posterior or its name for all layers; "A->B", with B for the last layer only; or a list, one for each
            layer. By default, the number of inducing patches of a local layer is its fan-in.
        boundary: Boundary of the inducing images in global layers, see `inducing.Conv2d`.
        normalise: Whether an `inducing.InducingNorm` follows each convolution.

    Example:
        >>> import inducing, torch
        >>> network = inducing.models.lenet(channels=4, num_inducing=5, prior="spatial-iw")
        >>> network(torch.randn(3, 1, 28, 28)).shape
        torch.Size([1, 3, 10])
    """
    make = _LayerFactory(posteriors_for_layers(posterior, 4), prior, boundary, normalise)
    colours, height, width = _image_shape(input_shape)
    layers = [
        *make.convolution(colours, channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        *make.convolution(channels, channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        *make.convolution(channels, channels),
        nn.ReLU(),
        nn.Flatten(),
        make.linear(channels * (height // 4) * (width // 4), out_features),
    ]
    return assemble(layers, input_shape, inducing)


@takes_inducing
def resnet8(
    input_shape: Shape = (3, 32, 32),
    out_features: int = 10,
    channels: int = 32,
    *,
    prior: Prior | str = "neal",
    posterior: PosteriorOfLayers = "global",
    boundary: Boundary = "circular",
    normalise: bool = False,
    **inducing: Unpack[InducingArguments],
) -> Network:
    """The paper's network for CIFAR-10: conv2d-relu, three residual blocks with average pooling, linear.

    A block is conv2d-relu-conv2d-relu with an identity shortcut. There are 8 layers with weights. The arguments are those
    of `lenet`.

    Example:
        >>> import inducing, torch
        >>> posterior = "factorised->global"
        >>> network = inducing.models.resnet8(channels=4, posterior=posterior, num_inducing=5)
        >>> network(torch.randn(3, 3, 32, 32)).shape
        torch.Size([1, 3, 10])
    """
    make = _LayerFactory(posteriors_for_layers(posterior, 8), prior, boundary, normalise)
    layers: list[nn.Module] = [*make.convolution(_image_shape(input_shape)[0], channels), nn.ReLU()]
    for pool in (nn.AvgPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)):
        first, second = make.convolution(channels, channels), make.convolution(channels, channels)
        layers += [Residual(*first, nn.ReLU(), *second, nn.ReLU()), pool]
    layers += [nn.Flatten(), make.linear(channels, out_features)]
    return assemble(layers, input_shape, inducing)


@takes_inducing
def resnet18(
    input_shape: Shape = (3, 32, 32),
    out_features: int = 10,
    channels: int = 64,
    *,
    prior: Prior | str = "neal",
    posterior: PosteriorOfLayers = "global",
    boundary: Boundary = "circular",
    normalise: bool | None = None,
    **inducing: Unpack[InducingArguments],
) -> Network:
    """ResNet-18 (He et al., 2016) for small images: a 3 x 3 convolution, four stages of two blocks, linear.

    The stages have 1, 2, 4 and 8 times ``channels`` channels, and all but the first halve the image size. There are 21
    layers with weights. The layer of a shortcut comes after those of its block. The arguments are those of `lenet`, except:

    Arguments:
        normalise: Whether an `inducing.InducingNorm` follows each convolution. Default: the paper's choice, True if the
            network has global inducing points.

    Example:
        >>> import inducing, torch
        >>> settings = {"posterior": "factorised->global", "num_inducing": 5}
        >>> network = inducing.models.resnet18(channels=2, **settings)
        >>> network(torch.randn(3, 3, 32, 32)).shape
        torch.Size([1, 3, 10])
    """
    posteriors = posteriors_for_layers(posterior, 21)
    if normalise is None:
        normalise = any(each.needs_inducing for each in posteriors)
    make = _LayerFactory(posteriors, prior, boundary, normalise)
    layers: list[nn.Module] = [*make.convolution(_image_shape(input_shape)[0], channels), nn.ReLU()]
    width = channels
    for stage in range(4):
        for block in range(2):
            wider, stride = channels * 2**stage, 2 if stage > 0 and block == 0 else 1
            first, second = make.convolution(width, wider, stride=stride), make.convolution(wider, wider)
            shortcut = None if stride == 1 and width == wider else make.convolution(width, wider, 1, stride)
            layers += [Residual(*first, nn.ReLU(), *second, shortcut=shortcut), nn.ReLU()]
            width = wider
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), make.linear(width, out_features)]
    return assemble(layers, input_shape, inducing)


def _image_shape(shape: Shape) -> Shape:
    """Return channels, height and width of an image."""
    if not isinstance(shape, Sequence) or len(shape) != 3:
        raise ValueError(f"input_shape must be (channels, height, width) of an image, e.g. (1, 28, 28), got {shape!r}")
    return tuple(shape)


class _LayerFactory:
    """Creates layers. Each takes the next posterior of the list."""

    def __init__(self, posteriors: list[Posterior], prior: Prior | str, boundary: Boundary, normalise: bool) -> None:
        self.posteriors = iter(posteriors)
        self.prior, self.boundary, self.normalise = prior, boundary, normalise

    def convolution(self, inputs: int, outputs: int, kernel_size: int = 3, stride: int = 1) -> list[nn.Module]:
        """Return a convolution that keeps the size of the image, up to the stride, and its normalisation, if any."""
        posterior, padding = next(self.posteriors), kernel_size // 2
        layer = Conv2d(inputs, outputs, kernel_size, stride, padding, self.prior, posterior, self.boundary)
        return [layer, InducingNorm()] if self.normalise else [layer]

    def linear(self, inputs: int, outputs: int) -> Linear:
        return Linear(inputs, outputs, prior=self.prior, posterior=next(self.posteriors))
