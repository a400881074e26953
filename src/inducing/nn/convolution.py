"""Bayesian convolutions: the same regression as `Linear`, on the patches of the inducing images.

F_l = conv(F_{l-1}, W_l),    W_l ~ Q(W_l | what the inducing images look like below)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import get_args

from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional

from inducing.linalg.geometry import Boundary, Geometry
from inducing.nn.draw import Draw, Function
from inducing.nn.fans import Fan, Prior, PriorModule
from inducing.nn.layers import Layer, Place, Shape
from inducing.nn.posteriors import Factorised, Posterior, as_posterior
from inducing.nn.priors import as_prior
from inducing.nn.sites import Site
from inducing.nn.weights import Weights


@dataclass(frozen=True, eq=False)
class Convolution(Function):
    """x -> conv(x, W) + b, with weights in the order of `torch.nn.functional.unfold` and the bias last."""

    weights: Float[Tensor, "S F O"]
    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    bias: bool

    def __call__(self, x: Float[Tensor, "#S B C H W"]) -> Float[Tensor, "S B O h w"]:
        samples, outputs = self.weights.shape[0], self.weights.shape[2]
        patches = self.weights[:, :-1] if self.bias else self.weights
        # (S, C k k, O) to (S O, C, k, k)
        kernels = patches.mT.reshape(samples * outputs, x.shape[2], *self.kernel_size)
        if x.shape[0] == 1:
            # the same maps for all samples: one convolution with all their kernels
            found = functional.conv2d(x[0], kernels, None, self.stride, self.padding)
        else:
            # a group of channels for each sample
            side_by_side = x.transpose(0, 1).flatten(1, 2)
            found = functional.conv2d(side_by_side, kernels, None, self.stride, self.padding, groups=samples)
        maps = found.unflatten(1, (samples, outputs)).transpose(0, 1)
        return maps + self.weights[:, -1, None, :, None, None] if self.bias else maps


class Conv2d(Layer):
    """A Bayesian convolution.

    Arguments:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        kernel_size: Size of the kernel, one number or (height, width).
        stride: Step between two outputs.
        padding: Zeros around the input map.
        prior: A prior or its name: "neal", "standard", "scale", "spatial-iw", "channel-iw", "kronecker-iw".
        posterior: A posterior or its name: "factorised", "local", "global", "prior". Precisions of global inducing points
            are one number for each inducing image, "shared" by all outputs or "per_output".
        boundary: How patches of the inducing images are taken at the border, in the posterior alone: "circular", the paper's
            approximation, which is cheaper and ignores the stride, or "exact", as the network itself does.
        bias: Whether each output channel has a bias; it is then one more weight.

    Example:
        >>> import inducing, torch
        >>> from torch import nn
        >>> images = torch.randn(5, 1, 8, 8)
        >>> layers = [inducing.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), inducing.Linear(256, 10)]
        >>> network = inducing.Network(layers, inducing_points=images)
        >>> network(images, num_samples=2).shape
        torch.Size([2, 5, 10])
    """

    prior: PriorModule
    posterior: Weights

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        prior: Prior | str = "neal",
        posterior: Posterior | str = "global",
        boundary: Boundary = "circular",
        bias: bool = True,
    ) -> None:
        super().__init__()
        if in_channels < 1 or out_channels < 1:
            raise ValueError(f"in_channels and out_channels must be at least 1, got {in_channels} and {out_channels}")
        self.in_channels, self.out_features, self.bias = in_channels, out_channels, bias
        kernel, step, zeros = (_pair(each) for each in (kernel_size, stride, padding))
        if min(*kernel, *step) < 1 or min(zeros) < 0:
            raise ValueError(f"kernel_size and stride must be at least 1 and padding 0, got {kernel}, {step}, {zeros}")
        if boundary not in get_args(Boundary):
            raise ValueError(f'boundary must be "circular" or "exact", got {boundary!r}')
        if boundary == "circular" and (kernel[0] % 2 == 0 or kernel[1] % 2 == 0):
            raise ValueError(f'circular boundaries need a kernel of odd size, got {kernel}; use boundary="exact"')
        self.geometry = Geometry(kernel, step, zeros, boundary)
        self.prior_spec, self.posterior_spec = as_prior(prior), as_posterior(posterior)
        if isinstance(self.posterior_spec, Factorised) and self.posterior_spec.local_reparameterisation:
            raise ValueError(
                "local reparameterisation would draw the pixels of an image independently, though they share weights; "
                "use Factorised() for a Conv2d"
            )
        self.is_built = False

    @property
    def input_shape(self) -> None:
        return None

    def build(self, place: Place) -> Shape:
        if self.is_built:
            raise RuntimeError("it is part of a network already; make a new layer for each place")
        if len(place.input_shape) != 3 or place.input_shape[0] != self.in_channels:
            raise ValueError(
                f"it takes maps of {self.in_channels} channels, (channels, height, width), but what reaches it is "
                f"{place.input_shape}"
            )
        height, width = place.input_shape[1:]
        shape = replace(self.geometry, boundary="exact").output_shape(height, width)
        if min(shape) < 1:
            raise ValueError(
                f"a kernel of size {self.geometry.kernel_size} does not fit into {height} x {width} pixels"
            )
        fan = Fan(self.in_channels, math.prod(self.geometry.kernel_size), self.bias)
        site = Site(fan.fan_in, self.out_features, place.num_inducing, place.targets, place.is_last, place.generator)
        self.posterior = self.posterior_spec.build_convolution(site, self.geometry, (height, width), self.bias)
        self.prior = self.prior_spec.build(fan)
        self.is_built = True
        return (self.out_features, *shape)

    def draw(
        self,
        inducing: Float[Tensor, "#S M C H W"] | None,
        num_samples: int,
        generator: Generator | None = None,
        consistent: bool = False,
    ) -> Draw:
        self._check_built()
        precision, prior_kl = self.prior(num_samples, generator)
        weights, kl = self.posterior(inducing, precision, num_samples, generator)
        geometry = self.geometry
        function = Convolution(weights, geometry.kernel_size, geometry.stride, geometry.padding, self.bias)
        return Draw(function, None if inducing is None else function(inducing), kl, prior_kl.expand(num_samples))

    def extra_repr(self) -> str:
        geometry = self.geometry
        bias = "" if self.bias else "bias=False, "
        return (
            f"{self.in_channels}, {self.out_features}, {geometry.kernel_size}, stride={geometry.stride}, "
            f"padding={geometry.padding}, {bias}{self.prior_spec}, {self.posterior_spec}, boundary={geometry.boundary!r}"
        )


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))
