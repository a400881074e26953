"""Stationary kernels, which depend only on the scaled distance between inputs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.linalg.noise import standard_gamma, standard_normal, uniform
from inducing.nn.draw import Function
from inducing.nn.gp.random_features import Cosines
from inducing.nn.kernels.base import Kernel, Values, check_positive


@dataclass(frozen=True)
class Stationary(Kernel, ABC):
    """k(x, y), a function of the scaled distance r,   r^2 = sum_d (x_d - y_d)^2 / lengthscale_d^2.

    Arguments:
        lengthscale: Initial lengthscale. Default: sqrt(in_features), the typical distance between standardised rows.
        variance: Initial variance.
        ard: Whether each input has its own lengthscale (automatic relevance determination).
    """

    lengthscale: float | None = None
    variance: float = 1.0
    ard: bool = True

    def __post_init__(self) -> None:
        check_positive(self, "variance", "lengthscale")

    def initial_values(self, in_features: int) -> dict[str, Tensor]:
        lengthscale = math.sqrt(in_features) if self.lengthscale is None else self.lengthscale
        count = in_features if self.ard else 1
        return {"lengthscale": torch.full((count,), lengthscale), "variance": torch.tensor(self.variance)}

    def matrix(self, values: Values, x: Float[Tensor, "#S N D"], y: Float[Tensor, "#S K D"]) -> Float[Tensor, "#S N K"]:
        lengthscale, variance = values
        # distances do not depend on the origin, and are more accurate if it is close to the rows
        centre, scale = y.detach().mean((0, 1)), 1 / lengthscale
        return self.covariance((x - centre) * scale, (y - centre) * scale, variance)

    def diagonal(self, values: Values, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "#S N"]:
        return values[1].expand(x.shape[:-1])

    def features(self, values: Values, shape: tuple[int, int, int], generator: Generator | None = None) -> Function:
        lengthscale, variance = values
        samples, _, count = shape
        # sqrt(2 variance) cos(w'x + b), w ~ the spectral density, b ~ U(0, 2 pi)   (Rahimi & Recht, 2007)
        frequencies = self.spectrum(shape, lengthscale, generator) / lengthscale[:, None]
        phases = 2 * math.pi * uniform((samples, 1, count), lengthscale, generator)
        return Cosines(frequencies, phases, (2 * variance).sqrt())

    @abstractmethod
    def covariance(self, x: Tensor, y: Tensor, variance: Tensor) -> Tensor:
        """Return k for all pairs of rows, which are already divided by the lengthscale."""

    @abstractmethod
    def spectrum(self, shape: tuple[int, int, int], like: Tensor, generator: Generator | None) -> Tensor:
        """Draw frequencies from the spectral density, for unit lengthscale."""


@dataclass(frozen=True)
class SquaredExponential(Stationary):
    """k(x, y) = variance * exp(-r^2 / 2): very smooth functions."""

    def covariance(self, x: Tensor, y: Tensor, variance: Tensor) -> Tensor:
        # log k = x'y - |x|^2 / 2 + log(variance) - |y|^2 / 2
        return _products_with_offsets(x, variance.log() - x.square().sum(-1) / 2, y, -y.square().sum(-1) / 2).exp_()

    def spectrum(self, shape: tuple[int, int, int], like: Tensor, generator: Generator | None) -> Tensor:
        return standard_normal(shape, like, generator)


@dataclass(frozen=True)
class Matern(Stationary, ABC):
    """Matern kernels with smoothness nu. The spectral density is a Student t with 2 nu degrees of freedom."""

    def covariance(self, x: Tensor, y: Tensor, variance: Tensor) -> Tensor:
        # r^2 = -2 x'y + |x|^2 + |y|^2; at equal rows the gradient of r is zero instead of infinite
        squared = _products_with_offsets(-2 * x, x.square().sum(-1), y, y.square().sum(-1))
        return variance * self.profile(squared.clamp_min(1e-30).sqrt())

    @abstractmethod
    def profile(self, distance: Tensor) -> Tensor:
        """Return k as a function of r, for unit variance."""

    def spectrum(self, shape: tuple[int, int, int], like: Tensor, generator: Generator | None) -> Tensor:
        # t = z / sqrt(g), g ~ Gamma(nu, rate nu)
        nu = like.new_full((shape[0], 1, shape[2]), self.nu)
        return standard_normal(shape, like, generator) * (nu / standard_gamma(nu, generator)).sqrt()

    @property
    @abstractmethod
    def nu(self) -> float:
        """Smoothness parameter."""


@dataclass(frozen=True)
class Matern12(Matern):
    """k(x, y) = variance * exp(-r): continuous, rough functions."""

    nu = 0.5

    def profile(self, distance: Tensor) -> Tensor:
        return torch.exp(-distance)


@dataclass(frozen=True)
class Matern32(Matern):
    """k(x, y) = variance * (1 + sqrt(3) r) exp(-sqrt(3) r): functions with one derivative."""

    nu = 1.5

    def profile(self, distance: Tensor) -> Tensor:
        scaled = math.sqrt(3) * distance
        return (1 + scaled) * torch.exp(-scaled)


@dataclass(frozen=True)
class Matern52(Matern):
    """k(x, y) = variance * (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r): functions with two derivatives."""

    nu = 2.5

    def profile(self, distance: Tensor) -> Tensor:
        scaled = math.sqrt(5) * distance
        return (1 + scaled + scaled.square() / 3) * torch.exp(-scaled)


def _products_with_offsets(
    x: Float[Tensor, "#S N D"],
    offset_x: Float[Tensor, "#S N"],
    y: Float[Tensor, "#S K D"],
    offset_y: Float[Tensor, "#S K"],
) -> Float[Tensor, "#S N K"]:
    """Return x'y + offset_x + offset_y for all pairs of rows, as one matrix product."""
    left = torch.cat([x, offset_x[..., None], torch.ones_like(x[..., :1])], -1)
    right = torch.cat([y, torch.ones_like(y[..., :1]), offset_y[..., None]], -1)
    return left @ right.mT
