"""Covariance functions of Gaussian processes.

A kernel is a frozen specification without tensors. A layer creates the hyperparameters from it (`KernelModule`, which stores
logarithms). A draw holds their evaluated values, so an optimiser step cannot change it:

    k(x, y) = kernel.matrix(values, x, y),    k(x, x) = kernel.diagonal(values, x)

All kernels define the same methods in the same order. Sums and products are written with + and *.
"""

from __future__ import annotations

from inducing.nn.by_name import lookup
from inducing.nn.kernels.base import Kernel, Product, Sum, Values
from inducing.nn.kernels.dot_products import ArcCosine, Linear
from inducing.nn.kernels.hyperparameters import LOG_KERNEL_SCALE, KernelModule
from inducing.nn.kernels.stationary import Matern12, Matern32, Matern52, SquaredExponential, Stationary

__all__ = [
    "KERNELS",
    "LOG_KERNEL_SCALE",
    "ArcCosine",
    "Kernel",
    "KernelModule",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Product",
    "SquaredExponential",
    "Stationary",
    "Sum",
    "Values",
    "as_kernel",
]

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
    """Return the kernel, or the kernel with this name and default settings."""
    return lookup("kernel", kernel, Kernel, KERNELS)
