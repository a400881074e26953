"""Covariance functions of Gaussian processes.

A kernel that a user writes is a frozen value without tensors. A layer makes its hyperparameters from it (`KernelModule`,
which stores logarithms), and a draw holds their evaluated values, so no optimiser step can alter it:

    k(x, y) = kernel.matrix(values, x, y),    k(x, x) = kernel.diagonal(values, x)

All kernels define the same methods in the same order. Sums and products are written with + and *.
"""

from __future__ import annotations

from inducing.nn.kernels.base import Kernel, Product, Sum, Values
from inducing.nn.kernels.dot_products import ArcCosine, Linear
from inducing.nn.kernels.hyperparameters import LOG_KERNEL_SCALE, KernelModule
from inducing.nn.kernels.stationary import Matern12, Matern32, Matern52, SquaredExponential, Stationary
from inducing.nn.specification import lookup

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
    """Turn a name into a kernel with its default settings."""
    return lookup("kernel", kernel, Kernel, KERNELS)
