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

from inducing.linalg.cholesky import cholesky
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
        tight: Whether the bound uses the tight conditional of `GPLayer`. Samples are from the prior conditional in any case.
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
    tight: bool = False

    @property
    def consistent(self) -> bool:
        return False

    def moments(self, x: Float[Tensor, "#S N D"]) -> tuple[Float[Tensor, "#S N O"], Float[Tensor, "#S N #O"]]:
        """Return the mean and variance of the values at each row."""
        rows = x.double()
        return self._moments(rows, self.kernel.matrix(self.values, rows, self.inducing_inputs), x.dtype)

    def moments_and_conditional(
        self, x: Float[Tensor, "#S N D"]
    ) -> tuple[Float[Tensor, "#S N O"], Float[Tensor, "#S N #O"], Float[Tensor, "#S N 1"]]:
        """Return the moments, and the variance that remains if the values at the inducing inputs are known."""
        rows = x.double()
        cross = self.kernel.matrix(self.values, rows, self.inducing_inputs)
        # d = k_ff - A A'
        conditional = self._variance(rows, moments_at_rows(cross, self.inverse, self.whitened).explained)
        return *self._moments(rows, cross, x.dtype), conditional.to(x.dtype)

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "S N O"]:
        mean, variance = self.moments(x)
        noise = standard_normal((self.num_samples, *mean.shape[1:]), mean, self.generator)
        return mean + variance.sqrt() * noise

    def _moments(
        self, rows: Float[Tensor, "#S N D"], cross: Float[Tensor, "#S N M"], dtype: torch.dtype
    ) -> tuple[Float[Tensor, "#S N O"], Float[Tensor, "#S N #O"]]:
        mean, explained = moments_at_rows(cross, self.inverse, self.whitened, self.spread)
        # k_ff - A A' + A TT'A'
        return (self.mean(rows) + mean).to(dtype), self._variance(rows, explained).to(dtype)

    def _variance(self, rows: Float[Tensor, "#S N D"], explained: Float[Tensor, "#S N #O"]) -> Float[Tensor, "#S N #O"]:
        """Return the prior variance of each row minus what is explained."""
        prior = self.kernel.diagonal(self.values, rows) + self.nugget[:, None]
        # at an inducing input the exact variance is about the nugget; rounding must not make it zero or negative
        return (prior[..., None] - explained).clamp_min(1e-3 * self.nugget.detach()[:, None, None])


@dataclass(frozen=True, eq=False)
class JointProcess(Function):
    """A Gaussian process given its values at the inducing inputs, sampled jointly at all rows of a call.

    Time grows with the cube of the number of rows. Two calls are independent draws given the values at the inducing inputs.

    Arguments:
        process: The process, with known values at the inducing inputs.
    """

    process: Process

    @property
    def consistent(self) -> bool:
        return False

    def moments(self, x: Float[Tensor, "#S N D"]) -> tuple[Float[Tensor, "S N O"], Float[Tensor, "#S N N"]]:
        """Return the mean of the values at all rows, and their covariance matrix, which all outputs share, in float64."""
        process, rows = self.process, x.double()
        # A = K_fu R^-T
        projected = process.kernel.matrix(process.values, rows, process.inducing_inputs) @ process.inverse.mT
        # D = k_ff - A A'
        identity = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
        prior = process.kernel.matrix(process.values, rows, rows) + process.nugget[:, None, None] * identity
        return process.mean(rows) + projected @ process.whitened, prior - projected @ projected.mT

    def __call__(self, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "S N O"]:
        mean, covariance = self.moments(x)
        noise = standard_normal((self.process.num_samples, *mean.shape[1:]), mean, self.process.generator)
        return (mean + cholesky(covariance) @ noise).to(x.dtype)


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
