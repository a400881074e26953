"""Drawn functions of a Gaussian process layer, given its values at the inducing inputs.

With K = RR' at the inducing inputs, u = m + R a and A = K_fu R^-T,

    f | u  ~  N(m(x) + A a, k_ff - A A')

Jitter is added to both K and k_ff, so it is part of the model: a small independent noise in every value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.linalg.moments import moments_at_rows
from inducing.linalg.noise import standard_normal
from inducing.nn.draw import Function
from inducing.nn.kernels import Kernel, Values

# elements of the largest temporary array when a path is run: 128 MiB
CHUNK = 2**24


@dataclass(frozen=True, eq=False)
class Zero(Function):
    """m(x) = 0."""

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "1 1 1"]:
        return x.new_zeros(1, 1, 1)


@dataclass(frozen=True, eq=False)
class Identity(Function):
    """m(x) = x."""

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "#S N D"]:
        return x


@dataclass(frozen=True, eq=False)
class Projection(Function):
    """m(x) = x W, with fixed W."""

    matrix: Float[Tensor, "D O"]

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "#S N O"]:
        return x @ self.matrix


@dataclass(frozen=True, eq=False)
class Process(Function):
    """A Gaussian process given its values at the inducing inputs, sampled independently at each row.

    These are the marginals of F given U in Algorithm 2, which is sufficient for a likelihood that factorises over rows.
    Computations are in float64, except for products with `spread`, which are in its dtype. The outputs have the dtype of the
    inputs.

    Arguments:
        kernel: The covariance function.
        values: Its evaluated hyperparameters.
        mean: The mean function.
        inducing_inputs: The inputs at which u is known.
        inverse: R^-1.
        nugget: The jitter on k_ff.
        whitened: a, or its mean if a is integrated out.
        spread: The root of the covariance of a, for each output or one for all, if a is integrated out.
        num_samples: S.
        generator: Source of the noise.
    """

    kernel: Kernel
    values: Values
    mean: Function
    inducing_inputs: Float[Tensor, "#S M D"]
    inverse: Float[Tensor, "#S M M"]
    nugget: Float[Tensor, "#S"]
    whitened: Float[Tensor, "#S M O"]
    spread: Float[Tensor, "#S #O M M"] | None
    num_samples: int
    generator: Generator | None

    @property
    def consistent(self) -> bool:
        return False

    def moments(self, x: Float[Tensor, "#S N D"]) -> tuple[Float[Tensor, "#S N O"], Float[Tensor, "#S N #O"]]:
        """Return the mean and variance of the values at each row."""
        rows = x.double()
        cross = self.kernel.matrix(self.values, rows, self.inducing_inputs)
        mean, explained = moments_at_rows(cross, self.inverse, self.whitened, self.spread)
        # k_ff - A A' + A TT'A'
        prior = self.kernel.diagonal(self.values, rows) + self.nugget[:, None]
        variance = prior[..., None] - explained
        # at an inducing input the exact variance is about the nugget; rounding must not make it zero or negative
        variance = variance.clamp_min(1e-3 * self.nugget.detach()[:, None, None])
        return (self.mean(rows) + mean).to(x.dtype), variance.to(x.dtype)

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "S N O"]:
        mean, variance = self.moments(x)
        noise = standard_normal((self.num_samples, *mean.shape[1:]), mean, self.generator)
        return mean + variance.sqrt() * noise


@dataclass(frozen=True, eq=False)
class Path(Function):
    """A sample path of a Gaussian process by pathwise conditioning, the same function at every call.

    f(x) = m(x) + g(x) + K_xu K^-1 (u - m - g(U) - e),   g(x) = phi(x) w ~ prior,   e ~ the jitter's noise

    This is a draw of the prior from random features, corrected to pass through u (Matheron's rule; Wilson et al., 2020).

    Arguments:
        kernel: The covariance function.
        values: Its evaluated hyperparameters.
        mean: The mean function.
        inducing_inputs: The inputs at which u is known.
        correction: K^-1 (u - m - g(U) - e).
        features: phi.
        weights: w / sqrt(number of features).
    """

    keeps_float64: ClassVar[bool] = True

    kernel: Kernel
    values: Values
    mean: Function
    inducing_inputs: Float[Tensor, "#S M D"]
    correction: Float[Tensor, "S M O"]
    features: Function
    weights: Float[Tensor, "S K O"]

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "S N O"]:
        if torch.compiler.is_compiling():
            # the number of rows is not known
            return self._evaluate(x.double()).to(x.dtype)
        # in chunks, since the features of all rows at once would have samples x rows x features elements
        samples, count = self.weights.shape[:2]
        chunks = x.split(max(1, CHUNK // (samples * count)), 1)
        return torch.cat([self._evaluate(rows.double()).to(x.dtype) for rows in chunks], 1)

    def _evaluate(self, rows: Float[Tensor, "#S N D"]) -> Float[Tensor, "S N O"]:
        prior = self.features(rows) @ self.weights
        update = self.kernel.matrix(self.values, rows, self.inducing_inputs) @ self.correction
        return self.mean(rows) + prior + update


def draw_path(process: Process, num_features: int) -> Path:
    """Draw a sample path of a process from random features of its prior."""
    inputs, whitened, generator = process.inducing_inputs, process.whitened, process.generator
    samples, outputs = process.num_samples, whitened.shape[-1]
    features = process.kernel.features(process.values, (samples, inputs.shape[-1], num_features), generator)
    noise = standard_normal((samples, num_features, outputs), whitened, generator)
    weights = noise / num_features**0.5
    # K^-1 (u - m - g(U) - e) = R^-T (a - R^-1 (g(U) + e))
    jitter = process.nugget[:, None, None].sqrt() * standard_normal((samples, *whitened.shape[1:]), whitened, generator)
    at_inducing = features(inputs) @ weights + jitter
    residual = whitened - process.inverse @ at_inducing
    correction = process.inverse.mT @ residual
    return Path(process.kernel, process.values, process.mean, inputs, correction, features, weights)
