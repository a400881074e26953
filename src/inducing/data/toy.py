"""Toy regression problems: the cubic with a gap of the paper's Section 4.1, and draws from a deep Gaussian process."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.checks import check_seed
from inducing.data.standardise import Standardiser
from inducing.linalg.cholesky import cholesky
from inducing.linalg.noise import seeded
from inducing.nn.kernels import SquaredExponential


class Cubic(NamedTuple):
    """The standardised toy data.

    Arguments:
        x: Standardised inputs.
        y: Standardised targets.
        noise_variance: The true noise variance on the standardised scale.
        inputs: Standardises x.
        targets: Standardises y.
    """

    x: Float[Tensor, "N 1"]
    y: Float[Tensor, "N 1"]
    noise_variance: float
    inputs: Standardiser
    targets: Standardiser


def cubic(num_data: int = 40, seed: int = 0, noise_std: float = 3.0) -> Cubic:
    """Draw x ~ U([-4, -2] u [2, 4]) and y = x^3 + N(0, noise_std^2), then standardise both.

    Example:
        >>> import inducing
        >>> toy = inducing.data.toy.cubic()
        >>> toy.x.shape
        torch.Size([40, 1])
    """
    random = np.random.default_rng(check_seed(seed))
    x = random.uniform(2.0, 4.0, (num_data, 1)) * random.choice([-1.0, 1.0], (num_data, 1))
    y = x**3 + noise_std * random.standard_normal((num_data, 1))
    inputs, targets = Standardiser.of(x), Standardiser.of(y)
    return Cubic(inputs.apply(x), targets.apply(y), float((noise_std / targets.std[0]) ** 2), inputs, targets)


class Composition(NamedTuple):
    """Data from a deep Gaussian process, y = f_2(f_1(x)) + noise.

    Arguments:
        x: Inputs, in ascending order.
        y: Targets.
        hidden: f_1(x).
        function: f_2(f_1(x)).
        noise_variance: The variance of the noise.
    """

    x: Float[Tensor, "N 1"]
    y: Float[Tensor, "N 1"]
    hidden: Float[Tensor, "N 1"]
    function: Float[Tensor, "N 1"]
    noise_variance: float


def composition(
    num_data: int = 100,
    seed: int = 0,
    noise_std: float = 0.05,
    half_range: float = 2.0,
    lengthscale: float = 1.0,
    variance: float = 1.0,
) -> Composition:
    """Draw x ~ U(-half_range, half_range) and y from the prior of a two-layer deep Gaussian process of width one.

    Both layers have zero mean and a squared-exponential kernel. They are sampled in float64 with the Cholesky factor of
    their covariance, with a jitter of 1e-8 of the variance.

    Example:
        >>> import inducing
        >>> inducing.data.toy.composition().y.shape
        torch.Size([100, 1])
    """
    generator = seeded(seed, "deep Gaussian process data")
    uniform = torch.rand(num_data, 1, generator=generator, dtype=torch.float64)
    x = half_range * (2 * uniform.sort(0).values - 1)
    hidden = _sample_process(x, lengthscale, variance, generator)
    function = _sample_process(hidden, lengthscale, variance, generator)
    y = function + noise_std * torch.randn(num_data, 1, generator=generator, dtype=torch.float64)
    return Composition(x.float(), y.float(), hidden.float(), function.float(), noise_std**2)


def _sample_process(
    x: Float[Tensor, "N 1"], lengthscale: float, variance: float, generator: Generator
) -> Float[Tensor, "N 1"]:
    """Draw f(x) ~ N(0, K)."""
    values = (x.new_tensor([lengthscale]), x.new_tensor(variance))
    covariance = SquaredExponential().matrix(values, x[None], x[None])
    jitter = 1e-8 * variance * torch.eye(len(x), dtype=x.dtype)
    return cholesky(covariance + jitter)[0] @ torch.randn(len(x), 1, generator=generator, dtype=x.dtype)
