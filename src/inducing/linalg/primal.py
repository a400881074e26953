"""The primal form of the regression, which factorises F x F matrices. It is the cheaper one for F <= n.

A = P + Y'Y = TT',   m = A^-1 Y't,   w = m + T^-T z,   z ~ N(0, I)
KL sample = logdet(A)/2 - logdet(P)/2 + w'Pw/2 - |z|^2/2
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.cholesky import (
    Factorisation,
    factorise,
    factorise_without_jitter,
    logdet,
    solve_lower,
    solve_lower_transposed,
)
from inducing.linalg.conditional import Conditional, condition
from inducing.linalg.precision import Precision
from inducing.linalg.pseudo_likelihood import Statistics, by_group, by_output
from inducing.linalg.reparameterisation import Adjoint, Solution
from inducing.linalg.rounding import MAX_KL_ERROR, primal_rounding


class Accuracy(NamedTuple):
    """The accuracy that a solution in float32 must have.

    Arguments:
        num_terms: Length of the sums in Y'Y. Their rounding errors grow with it.
        max_kl_error: The largest accepted error of the KL, in nats.
    """

    num_terms: int
    max_kl_error: float = MAX_KL_ERROR


def solve_primal(
    statistics: Statistics, prior: Precision, noise: Float[Tensor, "S G F C"], accuracy: Accuracy | None = None
) -> Solution | None:
    """Sample the weights. Return None if the solution does not have the given accuracy."""
    posterior = _factorise(statistics, prior, accuracy)
    if posterior is None:
        return None
    factor = posterior.factor

    # m = T^-T T^-1 Y't,   d = T^-T z,   w = m + d
    projected = solve_lower(factor, statistics.cross)
    if projected.shape[0] == noise.shape[0]:
        mean, deviation = solve_lower_transposed(factor, torch.cat([projected, noise], -1)).chunk(2, -1)
    else:
        mean, deviation = solve_lower_transposed(factor, projected), solve_lower_transposed(factor, noise)
    draw = mean + deviation
    energy = prior.quadratic_by_group(draw)
    if not _is_accurate(posterior, prior, draw, energy, statistics, accuracy):
        return None

    def adjoint(to_draw: Tensor | None, to_kl: Tensor | None) -> Adjoint:
        # g = A^-1 (w~ + kl~ (P w - A d)) = A^-1 (w~ + kl~ P w) - kl~ d
        right = draw.new_zeros(()) if to_draw is None else by_group(to_draw, noise.shape[1])
        scale = draw.new_zeros(()) if to_kl is None else to_kl.view(-1, 1, 1, 1)
        solved = solve_lower(factor, torch.addcmul(right, scale, prior.matmul(draw)))
        solved = solve_lower_transposed(factor, solved)
        return Adjoint(by_output(torch.addcmul(solved, scale, deviation, value=-1)))

    # u = (m + w) / 2 = w - d / 2
    middle = torch.sub(draw, deviation, alpha=0.5)
    return Solution(by_output(draw), by_output(middle), _sampled_kl(logdet(factor), energy, prior, noise), adjoint)


def sample_primal(
    statistics: Statistics,
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    accuracy: Accuracy | None = None,
    closed_form_kl: bool = False,
) -> tuple[Float[Tensor, "S F O"], Float[Tensor, "#S"]] | None:
    """Sample the weights, with their KL. Both are differentiated directly, through A and its factor.

    Return None if the solution does not have the given accuracy.
    """
    posterior = _factorise(statistics, prior, accuracy)
    if posterior is None:
        return None
    conditional = condition(*posterior, statistics.cross, noise, moments=closed_form_kl)
    with torch.no_grad():
        energy = prior.quadratic_by_group(conditional.draw)
        if not _is_accurate(posterior, prior, conditional.draw, energy, statistics, accuracy):
            return None
    return by_output(conditional.draw), primal_kl(conditional, prior, noise, closed_form_kl)


def primal_kl(
    conditional: Conditional, prior: Precision, noise: Float[Tensor, "S G F C"], closed_form: bool = False
) -> Float[Tensor, "#S"]:
    """Return log Q(w) - log P(w) of a draw from N(A^-1 c, A^-1), or its expectation, which needs the moments."""
    if not closed_form:
        return _sampled_kl(conditional.logdet, prior.quadratic_by_group(conditional.draw), prior, noise)
    assert conditional.mean is not None
    assert conditional.root is not None
    groups, features, columns = noise.shape[1:]
    # tr(P A^-1) = tr(T^-1 P T^-T)
    trace = columns * (prior.quadratic(conditional.root) - groups * features)
    return (_volume(conditional.logdet, prior, noise) + prior.quadratic(conditional.mean) + trace) / 2


def _sampled_kl(
    logdet: Float[Tensor, "#S G"], energy: Float[Tensor, "S G"], prior: Precision, noise: Float[Tensor, "S G F C"]
) -> Float[Tensor, " S"]:
    # KL sample = logdet(A)/2 - logdet(P)/2 + w'Pw/2 - |z|^2/2
    return (_volume(logdet, prior, noise) + energy.sum(-1) - noise.square().sum((1, 2, 3))) / 2


def _volume(logdet: Float[Tensor, "#S G"], prior: Precision, noise: Float[Tensor, "S G F C"]) -> Float[Tensor, "#S"]:
    """Return logdet(A) - logdet(P), summed over the outputs."""
    groups, _, columns = noise.shape[1:]
    return columns * (logdet.sum(-1) - groups * prior.logdet())


def _factorise(statistics: Statistics, prior: Precision, accuracy: Accuracy | None) -> Factorisation | None:
    # A = P + Y'Y = TT'
    matrix = prior.add_to(statistics.gram)
    return factorise(matrix) if accuracy is None else factorise_without_jitter(matrix)


def _is_accurate(
    posterior: Factorisation,
    prior: Precision,
    draw: Float[Tensor, "S G F C"],
    energy: Float[Tensor, "S G"],
    statistics: Statistics,
    accuracy: Accuracy | None,
) -> bool:
    if accuracy is None:
        return True
    rounding = primal_rounding(posterior, prior, draw, energy, accuracy.num_terms, statistics.square)
    return rounding.is_small(accuracy.max_kl_error)
