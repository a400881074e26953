"""Bayesian convolutions. They use the regression of `Linear` on the patches of the inducing images.

F_l = conv(F_{l-1}, W_l),    W_l ~ Q(W_l | inducing images at the layer's input)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from inducing.checks import check_sizes
from inducing.linalg.convolution.geometry import Boundary, Geometry
from inducing.nn.by_name import check_choice
from inducing.nn.context import BuildContext, DrawContext, Shape
from inducing.nn.density import LayerDensity, weight_density
from inducing.nn.draw import Draw, Function, Variables
from inducing.nn.layers.base import Layer
from inducing.nn.posteriors.base import Posterior, WeightContext, WeightModule, WeightPosterior
from inducing.nn.posteriors.by_name import as_posterior
from inducing.nn.posteriors.factorised import Factorised
from inducing.nn.priors import Prior, PriorModule, WeightLayout, as_prior


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
        bias = self.weights[:, -1].flatten() if self.bias else None
        if x.shape[0] == 1:
            # all samples share the maps: one convolution with the kernels of all samples
            found = functional.conv2d(x[0], kernels, bias, self.stride, self.padding)
        else:
            # a grouped convolution with one group of channels for each sample
            grouped = x.transpose(0, 1).flatten(1, 2)
            found = functional.conv2d(grouped, kernels, bias, self.stride, self.padding, groups=samples)
        return found.unflatten(1, (samples, outputs)).transpose(0, 1)


class Conv2d(Layer):
    """A Bayesian convolution.

    Arguments:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        kernel_size: Size of the kernel, one number or (height, width).
        stride: Step between two outputs.
        padding: Number of zeros around the input map.
        prior: A prior or its name: "neal", "standard", "scale", "spatial-iw", "channel-iw", "kronecker-iw".
        posterior: A posterior or its name: "factorised", "local", "global", "prior". A global posterior has one precision
            for each inducing image, "shared" by all outputs or "per_output".
        boundary: Boundary of the inducing images in the posterior. "circular" is the paper's approximation, which is
            cheaper and ignores the stride. "exact" uses the same padding and stride as the network.
        bias: Whether each output channel has a bias, with the same prior as the other weights.

    Example:
        >>> import inducing, torch
        >>> from torch import nn
        >>> images = torch.randn(5, 1, 8, 8)
        >>> convolution = inducing.Conv2d(1, 4, 3, padding=1)
        >>> layers = [convolution, nn.ReLU(), nn.Flatten(), inducing.Linear(256, 10)]
        >>> network = inducing.Network(layers, inducing_points=images)
        >>> network(images, num_samples=2).shape
        torch.Size([2, 5, 10])
    """

    prior: PriorModule
    posterior_spec: WeightPosterior
    posterior: WeightModule

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
        check_sizes(in_channels=in_channels, out_channels=out_channels)
        self.in_channels, self.out_features, self.bias = in_channels, out_channels, bias
        kernel, step, zeros = (_pair(each) for each in (kernel_size, stride, padding))
        if min(*kernel, *step) < 1 or min(zeros) < 0:
            raise ValueError(f"kernel_size and stride must be at least 1 and padding 0, got {kernel}, {step}, {zeros}")
        check_choice("boundary", boundary, Boundary)
        if boundary == "circular" and (kernel[0] % 2 == 0 or kernel[1] % 2 == 0):
            raise ValueError(f'a circular boundary needs a kernel of odd size, got {kernel}. Use boundary="exact"')
        self.geometry = Geometry(kernel, step, zeros, boundary)
        self.prior_spec, self.posterior_spec = as_prior(prior), as_posterior(posterior, WeightPosterior)
        if isinstance(self.posterior_spec, Factorised) and self.posterior_spec.local_reparameterisation:
            raise ValueError(
                "local reparameterisation would sample the pixels of an image independently, but they share weights. "
                "Use Factorised() in a Conv2d"
            )
        self.is_built = False

    @property
    def input_shape(self) -> None:
        return None

    def create(self, context: BuildContext) -> Shape:
        if len(context.input_shape) != 3 or context.input_shape[0] != self.in_channels:
            raise ValueError(
                f"expected maps of shape ({self.in_channels}, height, width), got rows of shape {context.input_shape}"
            )
        height, width = context.input_shape[1:]
        shape = replace(self.geometry, boundary="exact").output_shape(height, width)
        if min(shape) < 1:
            raise ValueError(
                f"a kernel of size {self.geometry.kernel_size} does not fit into {height} x {width} pixels"
            )
        layout = WeightLayout(self.in_channels, math.prod(self.geometry.kernel_size), self.bias)
        weights = WeightContext(layout, self.out_features, self is context.last_bayesian_layer, context, self.geometry)
        self.posterior = self.posterior_spec.build_weights(weights)
        self.prior = self.prior_spec.build(layout)
        return (self.out_features, *shape)

    def draw(self, inducing: Float[Tensor, "#S M C H W"] | None, context: DrawContext) -> Draw:
        precision, prior_kl = self.prior(context.num_samples, context.generator)
        weights, kl = self.posterior(inducing, precision, context)
        function = self.function(weights)
        above = None if inducing is None else function(inducing)
        return Draw(function, above, kl, prior_kl.expand(context.num_samples), Variables(weights, precision))

    def density(
        self, inducing: Float[Tensor, "#S M C H W"] | None, variables: Variables, context: DrawContext
    ) -> tuple[Float[Tensor, "S M O h w"] | None, LayerDensity]:
        self._check_values(variables.values, self.in_channels * math.prod(self.geometry.kernel_size) + self.bias)
        density = weight_density(self.prior, self.posterior, variables, inducing, context)
        return None if inducing is None else self.function(variables.values)(inducing), density

    def function(self, weights: Float[Tensor, "S F O"]) -> Convolution:
        """The layer as a function with given weights."""
        geometry = self.geometry
        return Convolution(weights, geometry.kernel_size, geometry.stride, geometry.padding, self.bias)

    def extra_repr(self) -> str:
        geometry = self.geometry
        bias = "" if self.bias else "bias=False, "
        return (
            f"{self.in_channels}, {self.out_features}, {geometry.kernel_size}, stride={geometry.stride}, "
            f"padding={geometry.padding}, {bias}{self.prior_spec}, {self.posterior_spec}, boundary={geometry.boundary!r}"
        )


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))
