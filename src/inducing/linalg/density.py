"""Log-densities of given weights under the prior N(0, P^-1), and under the posterior of `inducing.linalg.regression`.

Computations are in float64. With A = P + Y'Y = TT' and m = A^-1 Y't (primal), or B = I + Y P^-1 Y' = TT' (dual),

    log Q(w) - log P(w) = logdet(A)/2 - logdet(P)/2 + w'Pw/2 - |T'(w - m)|^2/2
                        = logdet(B)/2 + |T^-1 t|^2/2 - |t - Y w|^2/2

The second form is Bayes' rule: the pseudo-likelihood of the weights divided by its evidence.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.cholesky import factorise, logdet, solve_lower
from inducing.linalg.precision import Precision
from inducing.linalg.pseudo_likelihood import PseudoOutputs, Statistics, by_group

LOG_2PI = math.log(2 * math.pi)


def standard_log_density(noise: Float[Tensor, "S *shape"]) -> Float[Tensor, " S"]:
    """Return log N(z; 0, I), summed over all axes but the first."""
    return -(noise.square() + LOG_2PI).flatten(1).sum(-1) / 2


def prior_log_density(weights: Float[Tensor, "S F O"], prior: Precision) -> Float[Tensor, " S"]:
    """Return log N(w; 0, P^-1), summed over the outputs."""
    wide, weights = prior.to(torch.float64), weights.double()
    outputs, count = weights.shape[-1], weights[0].numel()
    return (outputs * wide.logdet() - wide.quadratic(weights[:, None]) - count * LOG_2PI) / 2


def regression_log_density(
    weights: Float[Tensor, "S F O"], inputs: Float[Tensor, "#S n F"], pseudo_outputs: PseudoOutputs, prior: Precision
) -> Float[Tensor, " S"]:
    """Return log Q(w) of the regression of pseudo-outputs on inputs, summed over the outputs."""
    rows, features = inputs.shape[-2:]
    data, inputs = pseudo_outputs.to(torch.float64), inputs.double()
    if features <= rows:
        return statistics_log_density(weights, data.statistics(inputs), prior)
    wide = prior.to(torch.float64)
    whitened, targets = data.whiten_inputs(inputs), data.whiten_values()
    # B = I + Y P^-1 Y' = TT'
    identity = torch.eye(rows, dtype=whitened.dtype, device=whitened.device)
    factor = factorise(identity + whitened @ wide.solve(whitened.mT)).factor
    groups, columns = data.layout
    residual = targets - whitened @ by_group(weights.double(), groups)
    squares = solve_lower(factor, targets).square().sum((1, 2, 3)) - residual.square().sum((1, 2, 3))
    return prior_log_density(weights, prior) + (columns * logdet(factor).sum(-1) + squares) / 2


def statistics_log_density(
    weights: Float[Tensor, "S F O"], statistics: Statistics, prior: Precision
) -> Float[Tensor, " S"]:
    """Return log Q(w), summed over the outputs, from X' Lambda X and X' Lambda v in float64."""
    wide, grouped = prior.to(torch.float64), by_group(weights.double(), statistics.gram.shape[1])
    # A = P + Y'Y = TT'
    factor = factorise(wide.add_to(statistics.gram)).factor
    # z = T'(w - m) = T'w - T^-1 Y't
    noise = factor.mT @ grouped - solve_lower(factor, statistics.cross)
    return standard_log_density(noise) + grouped.shape[-1] * logdet(factor).sum(-1) / 2
