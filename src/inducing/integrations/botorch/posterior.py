"""The joint law of the values of sampled functions, as a BoTorch posterior."""

from __future__ import annotations

import torch
from botorch.posteriors.ensemble import EnsemblePosterior
from botorch.sampling.get_sampler import GetSampler
from botorch.sampling.normal import SobolQMCNormalSampler
from jaxtyping import Float
from torch import Tensor


class DrawsPosterior(EnsemblePosterior):
    """The joint law of the values of S functions, with or without observation noise.

    A standard normal base sample z selects the function with index floor(S Phi(z)), the same for all batches, so Sobol
    samplers choose the functions evenly.

    Arguments:
        values: Values of the functions.
        noisy: The values with observation noise, if there is any.
    """

    def __init__(self, values: Float[Tensor, "*b S q m"], noisy: Float[Tensor, "*b S q m"] | None = None) -> None:
        super().__init__(values if noisy is None else noisy)
        self._functions = values

    @property
    def mean(self) -> Float[Tensor, "*b q m"]:
        return self._functions.mean(-3)

    @property
    def variance(self) -> Float[Tensor, "*b q m"]:
        # V[y] = V_s[f_s] + E_s[noise^2]
        return self._functions.var(-3, correction=0) + (self.values - self._functions).square().mean(-3)

    @property
    def base_sample_shape(self) -> torch.Size:
        return self.batch_shape + torch.Size([1, 1])

    @property
    def batch_range(self) -> tuple[int, int]:
        return 0, -2

    def rsample_from_base_samples(self, sample_shape: torch.Size, base_samples: Tensor) -> Tensor:
        if base_samples.is_floating_point():
            uniform = torch.special.ndtr(base_samples[..., 0, 0])
            base_samples = (self.ensemble_size * uniform).long().clamp_max(self.ensemble_size - 1)
        return super().rsample_from_base_samples(sample_shape, base_samples)

    def rsample(self, sample_shape: torch.Size | None = None) -> Tensor:
        shape = torch.Size([1]) if sample_shape is None or len(sample_shape) == 0 else sample_shape
        indices = torch.randint(self.ensemble_size, shape + self.batch_shape, device=self.device)
        return super().rsample_from_base_samples(shape, indices)


@GetSampler.register(DrawsPosterior)
def _sobol_sampler(
    posterior: DrawsPosterior, sample_shape: torch.Size, *, seed: int | None = None
) -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(sample_shape=sample_shape, seed=seed)
