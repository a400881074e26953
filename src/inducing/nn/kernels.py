"""Covariance functions of Gaussian processes.

A kernel that a user writes is a frozen value without tensors. A layer makes its hyperparameters from it (`KernelModule`,
which stores logarithms), and a draw holds their evaluated values, so no optimiser step can alter it:

    k(x, y) = kernel.matrix(values, x, y),    k(x, x) = kernel.diagonal(values, x)

All kernels define the same methods in the same order. Sums and products are written with + and *.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.linalg.noise import standard_gamma, standard_normal, uniform
from inducing.nn.draw import Function
from inducing.nn.features import Cosines, Hadamard, NetworkFeatures, Rectified, SignedSum
from inducing.nn.specification import lookup

Values = tuple[Tensor, ...]

# width of the hidden layers below the last in random features of a deep arc-cosine kernel, which are exact up to its inverse
FEATURE_WIDTH = 1024
# of an arc-cosine kernel, which hardly changes any more long before
MOST_HIDDEN_LAYERS = 1000

# Adam moves all parameters alike, but a kernel should move more slowly than the posterior that it is fitted to: otherwise
# inputs that matter are switched off, and the noise grows, before the posterior has had time to use them
LOG_KERNEL_SCALE = 0.7


@dataclass(frozen=True)
class Kernel(ABC):
    """A specification of a covariance function: without tensors, immutable, shared between layers as one likes."""

    @abstractmethod
    def first_values(self, in_features: int) -> dict[str, Tensor]:
        """The hyperparameters by name, all positive, as they are at first."""

    @abstractmethod
    def matrix(self, values: Values, x: Float[Tensor, "#S N D"], y: Float[Tensor, "#S K D"]) -> Float[Tensor, "#S N K"]:
        """k(x, y) for all pairs of rows."""

    @abstractmethod
    def diagonal(self, values: Values, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "#S N"]:
        """k(x, x) of each row."""

    @abstractmethod
    def features(self, values: Values, shape: tuple[int, int, int], generator: Generator | None = None) -> Function:
        """Draw random features, (S, N, D) -> (S, N, K), with E[phi_i(x) phi_i(y)] = k(x, y) for each of them.

        For `ArcCosine` with several hidden layers that holds up to the inverse of their width.

        Arguments:
            values: Evaluated hyperparameters.
            shape: (S, D, K): functions, inputs and features.
            generator: Source of the noise.
        """

    def __add__(self, other: Kernel) -> Sum:
        return Sum((self, other))

    def __mul__(self, other: Kernel) -> Product:
        return Product((self, other))


class KernelModule(nn.Module):
    """The hyperparameters of a kernel, stored as logarithms divided by `LOG_KERNEL_SCALE`."""

    def __init__(self, kernel: Kernel, in_features: int) -> None:
        super().__init__()
        first = kernel.first_values(in_features)
        self.names = tuple(f"scaled_log_{name}" for name in first)
        for name, value in zip(self.names, first.values(), strict=True):
            self.register_parameter(name, nn.Parameter(value.log() / LOG_KERNEL_SCALE))

    def __getitem__(self, name: str) -> Tensor:
        """The value of a hyperparameter by name, e.g. "lengthscale"."""
        values = {known.removeprefix("scaled_log_"): value for known, value in zip(self.names, self(), strict=True)}
        if name not in values:
            raise KeyError(f"no hyperparameter {name!r}; there are {', '.join(values)}")
        return values[name].detach()

    def extra_repr(self) -> str:
        names = (name.removeprefix("scaled_log_") for name in self.names)
        return ", ".join(f"{name}={[round(v, 3) for v in self[name].reshape(-1).tolist()]}" for name in names)

    def forward(self) -> Values:
        """Evaluate the hyperparameters, in float64."""
        return tuple((LOG_KERNEL_SCALE * getattr(self, name).double()).exp() for name in self.names)


@dataclass(frozen=True)
class Stationary(Kernel, ABC):
    """k(x, y) = variance * profile(r^2),   r^2 = sum_d (x_d - y_d)^2 / lengthscale_d^2.

    Arguments:
        lengthscale: First value; None stands for sqrt(in_features), the typical distance between standardised rows.
        variance: First value.
        ard: Whether each input has its own lengthscale, so that those without influence can be switched off.
    """

    lengthscale: float | None = None
    variance: float = 1.0
    ard: bool = True

    def __post_init__(self) -> None:
        _check_positive(self, "variance", self.variance)
        if self.lengthscale is not None:
            _check_positive(self, "lengthscale", self.lengthscale)

    def first_values(self, in_features: int) -> dict[str, Tensor]:
        lengthscale = math.sqrt(in_features) if self.lengthscale is None else self.lengthscale
        count = in_features if self.ard else 1
        return {"lengthscale": torch.full((count,), lengthscale), "variance": torch.tensor(self.variance)}

    def matrix(self, values: Values, x: Float[Tensor, "#S N D"], y: Float[Tensor, "#S K D"]) -> Float[Tensor, "#S N K"]:
        lengthscale, variance = values
        return variance * self.profile(_squared_distances(x / lengthscale, y / lengthscale))

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
    def profile(self, squared: Tensor) -> Tensor:
        """k as a function of r^2, for unit variance."""

    @abstractmethod
    def spectrum(self, shape: tuple[int, int, int], like: Tensor, generator: Generator | None) -> Tensor:
        """Draw frequencies from the spectral density, for unit lengthscale."""


@dataclass(frozen=True)
class SquaredExponential(Stationary):
    """k(x, y) = variance * exp(-r^2 / 2): very smooth functions."""

    def profile(self, squared: Tensor) -> Tensor:
        return torch.exp(-0.5 * squared)

    def spectrum(self, shape: tuple[int, int, int], like: Tensor, generator: Generator | None) -> Tensor:
        return standard_normal(shape, like, generator)


@dataclass(frozen=True)
class Matern(Stationary, ABC):
    """Functions with as many derivatives as nu allows; the spectral density is a Student t with 2 nu degrees of freedom."""

    def spectrum(self, shape: tuple[int, int, int], like: Tensor, generator: Generator | None) -> Tensor:
        # t = z / sqrt(g), g ~ Gamma(nu, rate nu)
        nu = like.new_full((shape[0], 1, shape[2]), self.nu)
        return standard_normal(shape, like, generator) * (nu / standard_gamma(nu, generator)).sqrt()

    @property
    @abstractmethod
    def nu(self) -> float:
        """Smoothness."""


@dataclass(frozen=True)
class Matern12(Matern):
    """k(x, y) = variance * exp(-r): continuous, rough functions."""

    nu = 0.5

    def profile(self, squared: Tensor) -> Tensor:
        return torch.exp(-_root(squared))


@dataclass(frozen=True)
class Matern32(Matern):
    """k(x, y) = variance * (1 + sqrt(3) r) exp(-sqrt(3) r): functions with one derivative."""

    nu = 1.5

    def profile(self, squared: Tensor) -> Tensor:
        scaled = math.sqrt(3) * _root(squared)
        return (1 + scaled) * torch.exp(-scaled)


@dataclass(frozen=True)
class Matern52(Matern):
    """k(x, y) = variance * (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r): functions with two derivatives."""

    nu = 2.5

    def profile(self, squared: Tensor) -> Tensor:
        scaled = math.sqrt(5) * _root(squared)
        return (1 + scaled + scaled.square() / 3) * torch.exp(-scaled)


@dataclass(frozen=True)
class Linear(Kernel):
    """k(x, y) = sum_d variance_d x_d y_d + bias: Bayesian linear regression.

    Arguments:
        variance: First value; None stands for 1 / in_features.
        bias: First value of the variance of the intercept.
        ard: Whether each input has its own variance.
    """

    variance: float | None = None
    bias: float = 1.0
    ard: bool = True

    def __post_init__(self) -> None:
        _check_positive(self, "bias", self.bias)
        if self.variance is not None:
            _check_positive(self, "variance", self.variance)

    def first_values(self, in_features: int) -> dict[str, Tensor]:
        variance = 1 / in_features if self.variance is None else self.variance
        return {
            "variance": torch.full((in_features if self.ard else 1,), variance),
            "bias": torch.tensor(self.bias),
        }

    def matrix(self, values: Values, x: Float[Tensor, "#S N D"], y: Float[Tensor, "#S K D"]) -> Float[Tensor, "#S N K"]:
        variance, bias = values
        return (variance * x) @ y.mT + bias

    def diagonal(self, values: Values, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "#S N"]:
        variance, bias = values
        return (variance * x.square()).sum(-1) + bias

    def features(self, values: Values, shape: tuple[int, int, int], generator: Generator | None = None) -> Function:
        variance, bias = values
        samples, _, count = shape
        weights = variance.sqrt()[:, None] * standard_normal(shape, variance, generator)
        offset = bias.sqrt() * standard_normal((samples, 1, count), variance, generator)
        return NetworkFeatures((weights,), (offset,))


@dataclass(frozen=True)
class ArcCosine(Kernel):
    """The infinitely wide ReLU network with ``depth`` hidden layers (Cho & Saul, 2009).

    K_0 = weight x'y / D + bias,    K_l = weight * 2 E[relu(f) relu(g)] + bias   with (f, g) ~ N(0, K_{l-1})

    Arguments:
        depth: Number of hidden layers.
        weight: First value of the variance of the weights, times the fan-in.
        bias: First value of the variance of the biases.
    """

    depth: int = 1
    weight: float = 1.0
    bias: float = 0.1

    def __post_init__(self) -> None:
        if not (isinstance(self.depth, int) and 1 <= self.depth <= MOST_HIDDEN_LAYERS):
            raise ValueError(
                f"depth must be a whole number of hidden layers from 1 to {MOST_HIDDEN_LAYERS}, got {self.depth!r}"
            )
        _check_positive(self, "weight", self.weight)
        _check_positive(self, "bias", self.bias)

    def first_values(self, in_features: int) -> dict[str, Tensor]:
        return {"weight": torch.tensor(self.weight), "bias": torch.tensor(self.bias)}

    def matrix(self, values: Values, x: Float[Tensor, "#S N D"], y: Float[Tensor, "#S K D"]) -> Float[Tensor, "#S N K"]:
        weight, bias = values
        cross = weight * (x @ y.mT) / x.shape[-1] + bias
        of_x, of_y = (weight * rows.square().sum(-1) / x.shape[-1] + bias for rows in (x, y))
        for _ in range(self.depth):
            scale = (of_x[..., :, None] * of_y[..., None, :]).sqrt()
            # a row with itself has a cosine of 1, where the angle has an infinite derivative, though the kernel has not
            cosine = (cross / scale).clamp(-1 + 1e-12, 1 - 1e-12)
            angle = torch.acos(cosine)
            # 2 E[relu relu] = scale (sin(angle) + (pi - angle) cos(angle)) / pi
            cross = weight * scale * ((1 - cosine.square()).sqrt() + (math.pi - angle) * cosine) / math.pi + bias
            of_x, of_y = weight * of_x + bias, weight * of_y + bias
        return cross

    def diagonal(self, values: Values, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "#S N"]:
        weight, bias = values
        variance = weight * x.square().mean(-1) + bias
        for _ in range(self.depth):
            # 2 E[relu(f)^2] = V[f]
            variance = weight * variance + bias
        return variance

    def features(self, values: Values, shape: tuple[int, int, int], generator: Generator | None = None) -> Function:
        weight, bias = values
        samples, inputs, count = shape
        # a finite network, wide enough below its last hidden layer: relu features times sqrt(2), so weights of variance
        # 2 / fan-in
        widths = [inputs] + [max(count, FEATURE_WIDTH)] * (self.depth - 1) + [count]
        gains = [1.0] + [2.0] * (self.depth - 1)
        weights = tuple(
            (gain * weight / fan).sqrt() * standard_normal((samples, fan, out), weight, generator)
            for fan, out, gain in zip(widths, widths[1:], gains, strict=False)
        )
        offsets = tuple(bias.sqrt() * standard_normal((samples, 1, out), weight, generator) for out in widths[1:])
        last = standard_normal((samples, 1, count), weight, generator)
        return Rectified(NetworkFeatures(weights, offsets), (2 * weight).sqrt(), bias.sqrt() * last)


@dataclass(frozen=True)
class Sum(Kernel):
    """k(x, y) = k_1(x, y) + k_2(x, y): the sum of independent functions."""

    kernels: tuple[Kernel, ...]

    def first_values(self, in_features: int) -> dict[str, Tensor]:
        return _joined(self.kernels, in_features)

    def matrix(self, values: Values, x: Float[Tensor, "#S N D"], y: Float[Tensor, "#S K D"]) -> Float[Tensor, "#S N K"]:
        first, *others = (kernel.matrix(part, x, y) for kernel, part in _parts(self.kernels, values))
        return sum(others, start=first)

    def diagonal(self, values: Values, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "#S N"]:
        first, *others = (kernel.diagonal(part, x) for kernel, part in _parts(self.kernels, values))
        return sum(others, start=first)

    def features(self, values: Values, shape: tuple[int, int, int], generator: Generator | None = None) -> Function:
        samples, _, count = shape
        parts = [kernel.features(part, shape, generator) for kernel, part in _parts(self.kernels, values)]
        # phi = sum_j s_j phi_j with random signs s_j: E[phi phi'] = sum_j k_j
        signs = [standard_normal((samples, 1, count), values[0], generator).sign() for _ in parts]
        return SignedSum(tuple(parts), tuple(signs))


@dataclass(frozen=True)
class Product(Kernel):
    """k(x, y) = k_1(x, y) * k_2(x, y)."""

    kernels: tuple[Kernel, ...]

    def first_values(self, in_features: int) -> dict[str, Tensor]:
        return _joined(self.kernels, in_features)

    def matrix(self, values: Values, x: Float[Tensor, "#S N D"], y: Float[Tensor, "#S K D"]) -> Float[Tensor, "#S N K"]:
        first, *others = (kernel.matrix(part, x, y) for kernel, part in _parts(self.kernels, values))
        return math.prod(others, start=first)

    def diagonal(self, values: Values, x: Float[Tensor, "#S N D"]) -> Float[Tensor, "#S N"]:
        first, *others = (kernel.diagonal(part, x) for kernel, part in _parts(self.kernels, values))
        return math.prod(others, start=first)

    def features(self, values: Values, shape: tuple[int, int, int], generator: Generator | None = None) -> Function:
        # products of independent features: E[phi_1 phi_1' phi_2 phi_2'] = k_1 k_2
        return Hadamard(tuple(k.features(part, shape, generator) for k, part in _parts(self.kernels, values)))


KERNELS: dict[str, type[Kernel]] = {
    "squared-exponential": SquaredExponential,
    "rbf": SquaredExponential,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "linear": Linear,
    "arc-cosine": ArcCosine,
}


def as_kernel(kernel: Kernel | str) -> Kernel:
    """Turn a name into a kernel with its default settings."""
    return lookup("kernel", kernel, Kernel, KERNELS)


def _joined(kernels: tuple[Kernel, ...], in_features: int) -> dict[str, Tensor]:
    return {
        f"{index}_{name}": value
        for index, kernel in enumerate(kernels)
        for name, value in kernel.first_values(in_features).items()
    }


def _parts(kernels: tuple[Kernel, ...], values: Values) -> list[tuple[Kernel, Values]]:
    """Give each kernel its own of the joined values."""
    parts, start = [], 0
    for kernel in kernels:
        count = len(kernel.first_values(1))
        parts.append((kernel, values[start : start + count]))
        start += count
    return parts


def _squared_distances(x: Float[Tensor, "#S N D"], y: Float[Tensor, "#S K D"]) -> Float[Tensor, "#S N K"]:
    """|x|^2 + |y|^2 - 2 x'y, for all pairs of rows, around the mean of y so that an offset costs no digits."""
    centre = y.detach().mean((0, 1))
    x, y = x - centre, y - centre
    norms = x.square().sum(-1)[..., :, None] + y.square().sum(-1)[..., None, :]
    samples = norms.shape[0]
    squared = torch.baddbmm(norms, x.expand(samples, -1, -1), y.expand(samples, -1, -1).mT, alpha=-2)
    return squared.clamp_min(0.0)


def _root(squared: Tensor) -> Tensor:
    """r = sqrt(r^2), with a zero gradient instead of an infinite one where rows coincide."""
    return squared.clamp_min(1e-30).sqrt()


def _check_positive(kernel: Kernel, name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} of {type(kernel).__name__} must be a positive number, got {value}")
