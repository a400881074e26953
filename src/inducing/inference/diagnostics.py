"""Have the chains converged, and how much do they say? Rank-normalised split R-hat and bulk effective sample size.

Both look at numbers that mean the same in every chain, such as predictions; the weights of a neural network do not.

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

# from each chain
FEWEST_DRAWS = 8


class Diagnostics(NamedTuple):
    """Convergence of each number that was looked at; NaN where all draws are equal.

    Arguments:
        r_hat: Spread of all chains over that of each by itself, 1 in the limit; above 1.01 they do not agree.
        ess: The number of independent draws that would tell as much about the centre of the distribution.
    """

    r_hat: Float[Tensor, "*Q"]
    ess: Float[Tensor, "*Q"]


def diagnose(draws: Float[Tensor, "C N *Q"]) -> Diagnostics:
    """Compare C chains of N draws, for each of the numbers that were drawn.

    Example:
        >>> import torch
        >>> from inducing.inference.diagnostics import diagnose
        >>> draws = torch.randn(4, 1000, 3, generator=torch.Generator().manual_seed(0))
        >>> bool((diagnose(draws).r_hat < 1.01).all())
        True
    """
    if draws.shape[1] < FEWEST_DRAWS:
        raise ValueError(f"diagnostics need at least {FEWEST_DRAWS} draws from each chain, got {draws.shape[1]}")
    # each chain is cut into halves, so that one that still drifts disagrees with itself
    half = draws.shape[1] // 2
    halves = torch.cat([draws[:, :half], draws[:, -half:]]).double()
    ranked = _normal_scores(halves)
    # the distance from the median tells of chains with one centre and different spreads
    ordered = halves.flatten(0, 1).sort(0).values
    median = (ordered[len(ordered) // 2 - 1] + ordered[len(ordered) // 2]) / 2
    folded = _normal_scores((halves - median).abs())
    r_hat = torch.maximum(_r_hat(ranked), _r_hat(folded))
    constant = (halves == halves[:1, :1]).all(0).all(0)
    return Diagnostics(r_hat.masked_fill(constant, math.nan), _ess(ranked).masked_fill(constant, math.nan))


def _normal_scores(draws: Float[Tensor, "C N *Q"]) -> Float[Tensor, "C N *Q"]:
    """Replace draws by normal quantiles of their ranks among all chains; equal ones share their mean rank."""
    pooled = draws.flatten(0, 1)
    # importing it takes half a second
    from scipy.stats import rankdata

    ranks = torch.as_tensor(rankdata(pooled.cpu().numpy(), axis=0), dtype=draws.dtype, device=draws.device)
    return torch.special.ndtri((ranks - 3 / 8) / (len(pooled) + 1 / 4)).view(draws.shape)


def _r_hat(draws: Float[Tensor, "C N *Q"]) -> Float[Tensor, "*Q"]:
    # R^2 = ((N - 1) / N W + B / N) / W, with W within and B / N between the chains
    within, length = draws.var(1).mean(0), draws.shape[1]
    return ((length - 1) / length + draws.mean(1).var(0) / within).sqrt()


def _ess(draws: Float[Tensor, "C N *Q"]) -> Float[Tensor, "*Q"]:
    """C N / tau, tau = 1 + 2 sum of autocorrelations, cut off where pairs of them turn negative (Geyer, 1992)."""
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
    # at the latest, they are cut off at the last pair
    positive[-1] = False
    # sums of pairs fall with the lag; noise that says otherwise is levelled
    smooth = torch.where(positive, pairs, math.inf).cummin(0).values
    last = even.gather(0, positive.sum(0, keepdim=True))[0]
    tau = -1 + 2 * torch.where(positive, smooth, 0.0).sum(0) + last.clamp_min(0)
    size = draws.shape[0] * length
    return size / tau.clamp_min(1 / math.log10(size))


def _autocovariance(draws: Float[Tensor, "C N *Q"]) -> Float[Tensor, "C N *Q"]:
    """The autocovariance at lags 0 .. N - 1, by the Fourier transform of the padded, centred draws."""
    length = draws.shape[1]
    spectrum = torch.fft.rfft(draws - draws.mean(1, keepdim=True), n=2 * length, dim=1).abs().square()
    return torch.fft.irfft(spectrum, n=2 * length, dim=1)[:, :length] / length
