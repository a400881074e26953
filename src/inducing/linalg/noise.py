"""Random numbers with an explicit generator.

Noise is drawn on the generator's device and then moved, so one seed on the CPU gives the same function on every device.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Generator, Tensor

from inducing.checks import check_seed


def seeded(seed: int, purpose: str, device: torch.device | str = "cpu") -> Generator:
    """Return a generator for a seed and a purpose, so that one seed gives independent streams.

    Without the purpose, functions drawn with seed 0 and observation noise drawn with seed 0 would use the same numbers.
    """
    digest = hashlib.sha256(f"{purpose}:{check_seed(seed)}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def standard_normal(shape: tuple[int, ...], like: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw N(0, 1) noise with the dtype and device of ``like``."""
    device = like.device if generator is None else generator.device
    return torch.randn(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)


def initial_normal(*shape: int, generator: Generator | None) -> Tensor:
    """Draw initial values from N(0, 1) in torch's default dtype. Without a generator, use torch's global one."""
    device = None if generator is None else generator.device
    return torch.randn(shape, device=device, generator=generator)


def uniform(shape: tuple[int, ...], like: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw U(0, 1) noise with the dtype and device of ``like``."""
    device = like.device if generator is None else generator.device
    return torch.rand(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)


def standard_gamma(concentration: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw Gamma(concentration, 1) variables, differentiable in the concentration."""
    device = concentration.device if generator is None else generator.device
    sample: Tensor = torch._standard_gamma(concentration.to(device), generator=generator)
    return sample.to(concentration.device)
