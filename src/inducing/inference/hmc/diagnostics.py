"""Convergence diagnostics of Markov chains: rank-normalised split R-hat and bulk effective sample size.

They apply to identifiable quantities, such as predictions. The weights of a neural network are not identifiable.

References:
    Vehtari, Gelman, Simpson, Carpenter & Buerkner, Rank-normalization, folding, and localization: An improved R-hat for
    assessing convergence of MCMC (2021).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

# minimum number of draws from each chain
MIN_DRAWS = 8


class Diagnostics(NamedTuple):
    """Convergence diagnostics of each quantity. They are NaN if all draws are equal.

    Arguments:
        r_hat: Ratio of the spread of all chains to the spread within chains, 1 in the limit. Above 1.01 chains disagree.
        ess: Effective sample size: the number of independent draws with the same standard error of the mean.
    """

    r_hat: Float[Tensor, "*Q"]
    ess: Float[Tensor, "*Q"]


def diagnose(draws: Float[Tensor, "C N *Q"]) -> Diagnostics:
    """Return R-hat and effective sample size of C chains with N draws each, for each quantity.

    Example:
        >>> import torch
        >>> from inducing.inference.hmc.diagnostics import diagnose
        >>> draws = torch.randn(4, 1000, 3, generator=torch.Generator().manual_seed(0))
        >>> bool((diagnose(draws).r_hat < 1.01).all())
        True
    """
    if draws.shape[1] < MIN_DRAWS:
        raise ValueError(f"diagnostics need at least {MIN_DRAWS} draws from each chain, got {draws.shape[1]}")
    # chains are split into halves, so that R-hat detects a chain that still drifts
    half = draws.shape[1] // 2
    halves = torch.cat([draws[:, :half], draws[:, -half:]]).double()
    ranked = _normal_scores(halves)
    # the distance from the median detects chains with the same centre and different spreads
    ordered = halves.flatten(0, 1).sort(0).values
    median = (ordered[len(ordered) // 2 - 1] + ordered[len(ordered) // 2]) / 2
    folded = _normal_scores((halves - median).abs())
    r_hat = torch.maximum(_r_hat(ranked), _r_hat(folded))
    constant = (halves == halves[:1, :1]).all(0).all(0)
    return Diagnostics(r_hat.masked_fill(constant, math.nan), _ess(ranked).masked_fill(constant, math.nan))


def _normal_scores(draws: Float[Tensor, "C N *Q"]) -> Float[Tensor, "C N *Q"]:
    """Replace draws by normal quantiles of their ranks among all chains. Ties have their mean rank."""
    pooled = draws.flatten(0, 1).movedim(0, -1).contiguous()
    ordered = pooled.sort(-1).values
    below, not_above = torch.searchsorted(ordered, pooled), torch.searchsorted(ordered, pooled, right=True)
    ranks = (below + 1 + not_above).to(draws.dtype) / 2
    ranks = ranks.masked_fill(pooled.isnan().any(-1, keepdim=True), math.nan)
    scores = torch.special.ndtri((ranks - 3 / 8) / (pooled.shape[-1] + 1 / 4))
    return scores.movedim(-1, 0).reshape(draws.shape)


def _r_hat(draws: Float[Tensor, "C N *Q"]) -> Float[Tensor, "*Q"]:
    # R^2 = ((N - 1) / N W + B / N) / W, with the variance W within chains and B / N between chains
    within, length = draws.var(1).mean(0), draws.shape[1]
    return ((length - 1) / length + draws.mean(1).var(0) / within).sqrt()


def _ess(draws: Float[Tensor, "C N *Q"]) -> Float[Tensor, "*Q"]:
    """Return C N / tau, tau = 1 + 2 sum of autocorrelations, truncated where sums of pairs are negative (Geyer, 1992)."""
    length = draws.shape[1]
    within = draws.var(1).mean(0)
    total = (length - 1) / length * within + draws.mean(1).var(0)
    # rho_t = 1 - (W - mean autocovariance over the chains) / total variance
    correlation = 1 - (within - _autocovariance(draws).mean(0)) / total
    correlation[0] = 1
    num_pairs = (length - 1) // 2
    even, odd = correlation[::2][:num_pairs], correlation[1::2][:num_pairs]
    pairs = even + odd
    positive = (pairs > 0).cumprod(0).bool()
    # truncate at the last pair at the latest
    positive[-1] = False
    # the true sums of pairs decrease with the lag, so make the estimates monotone
    smooth = torch.where(positive, pairs, math.inf).cummin(0).values
    last = even.gather(0, positive.sum(0, keepdim=True))[0]
    tau = -1 + 2 * torch.where(positive, smooth, 0.0).sum(0) + last.clamp_min(0)
    size = draws.shape[0] * length
    return size / tau.clamp_min(1 / math.log10(size))


def _autocovariance(draws: Float[Tensor, "C N *Q"]) -> Float[Tensor, "C N *Q"]:
    """Return the autocovariance at lags 0 .. N - 1, by the Fourier transform of the padded, centred draws."""
    length = draws.shape[1]
    spectrum = torch.fft.rfft(draws - draws.mean(1, keepdim=True), n=2 * length, dim=1).abs().square()
    return torch.fft.irfft(spectrum, n=2 * length, dim=1)[:, :length] / length
