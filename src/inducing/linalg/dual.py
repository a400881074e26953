"""The dual form of the regression, which factorises n x n matrices. It is the cheaper one for n < F.

B = I + Y P^-1 Y' = TT',   w = w0 + P^-1 Y's,   s = B^-1 (t - Y w0 + e),   w0 ~ N(0, P^-1),   e ~ N(0, I)
KL sample = logdet(B)/2 + |T^-1 t|^2/2 - |s - e|^2/2,   since L'(v - X w) = s - e
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.cholesky import factorise, factorise_without_jitter, logdet, solve_lower, solve_lower_transposed
from inducing.linalg.precision import Precision
from inducing.linalg.pseudo_likelihood import PseudoOutputs, by_group, by_output
from inducing.linalg.reparameterisation import Adjoint, Solution
from inducing.linalg.rounding import dual_rounding


def solve_dual(
    inputs: Float[Tensor, "#S n F"],
    pseudo_outputs: PseudoOutputs,
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    row_noise: Float[Tensor, "S G n C"],
    checked: bool = False,
) -> Solution | None:
    """Sample the weights. Return None if `checked` and the solution is inaccurate."""
    groups, _, columns = noise.shape[1:]
    whitened, targets = pseudo_outputs.whiten_inputs(inputs), pseudo_outputs.whiten_values()
    # B = I + Y P^-1 Y' = TT'
    matrix = _evidence_matrix(whitened, prior)
    evidence = factorise_without_jitter(matrix) if checked else factorise(matrix)
    if evidence is None:
        return None
    factor = evidence.factor

    # Matheron's rule: w = w0 + P^-1 Y's,   s = B^-1 (t - Y w0 + e)
    prior_weights = prior.colour(noise)
    dual = _solve(factor, targets - whitened @ prior_weights + row_noise)
    draw = prior_weights + prior.solve(whitened.mT @ dual)
    # m = P^-1 Y' B^-1 t
    projected = solve_lower(factor, targets)
    solved_targets = solve_lower_transposed(factor, projected)
    mean = prior.solve(whitened.mT @ solved_targets)
    if checked and not dual_rounding(evidence, solved_targets, dual, row_noise, inputs.shape[-1]).is_small():
        return None
    # L'(v - X w) = s - e
    residual = dual - row_noise
    # KL sample = logdet(B)/2 + |T^-1 t|^2/2 - |s - e|^2/2
    squares = projected.square().sum((1, 2, 3)) - residual.square().sum((1, 2, 3))
    kl = (columns * logdet(factor).sum(-1) + squares) / 2

    def adjoint(to_draw: Tensor | None, to_kl: Tensor | None) -> Adjoint:
        # g = A^-1 b,   b = w~ + kl~ (P w - A (w - m)) = w~ + kl~ Y'(s - e)
        weights, rows = draw.new_zeros(()), residual.new_zeros(())
        if to_draw is not None:
            # A^-1 w~ = P^-1 (w~ - Y' B^-1 Y P^-1 w~),   Y A^-1 w~ = B^-1 Y P^-1 w~
            right = by_group(to_draw, groups)
            rows = _solve(factor, whitened @ prior.solve(right))
            weights = prior.solve(right - whitened.mT @ rows)
        if to_kl is not None:
            # A^-1 Y'r = P^-1 Y' B^-1 r,   Y A^-1 Y'r = B^-1 Y P^-1 Y'r
            scale = to_kl.view(-1, 1, 1, 1)
            weights = weights + scale * prior.solve(whitened.mT @ _solve(factor, residual))
            rows = rows + scale * _solve(factor, whitened @ prior.solve(whitened.mT @ residual))
        # L'(v - X u) = (L'(v - X w) + L'(v - X m)) / 2 = (s - e + B^-1 t) / 2
        whitened_residual = (residual + solved_targets) / 2
        return Adjoint(by_output(weights), *map(pseudo_outputs.unwhiten, (rows, whitened_residual)))

    # u = (m + w) / 2
    return Solution(by_output(draw), by_output(torch.lerp(mean, draw, 0.5)), kl, adjoint)


def closed_form_dual_kl(
    inputs: Float[Tensor, "#S n F"], pseudo_outputs: PseudoOutputs, prior: Precision
) -> Float[Tensor, "#S"]:
    """Return KL = (logdet(B) + tr(B^-1) - n + m'Pm) / 2, since tr(P A^-1) - F = tr(B^-1) - n."""
    whitened, targets = pseudo_outputs.whiten_inputs(inputs), pseudo_outputs.whiten_values()
    rows, columns = targets.shape[2:]
    factor = factorise(_evidence_matrix(whitened, prior)).factor
    identity = torch.eye(rows, dtype=factor.dtype, device=factor.device).expand(1, targets.shape[1], -1, -1)
    inverse, projected = solve_lower(factor, identity), solve_lower(factor, targets)
    mean = prior.solve(whitened.mT @ solve_lower_transposed(factor, projected))
    per_output = logdet(factor) + inverse.square().sum((-2, -1)) - rows
    return (columns * per_output.sum(-1) + prior.quadratic(mean)) / 2


def _solve(factor: Float[Tensor, "#S G n n"], rows: Float[Tensor, "S G n C"]) -> Float[Tensor, "S G n C"]:
    """Return B^-1 r = T^-T T^-1 r."""
    return solve_lower_transposed(factor, solve_lower(factor, rows))


def _evidence_matrix(whitened: Float[Tensor, "#S G n F"], prior: Precision) -> Float[Tensor, "#S G n n"]:
    """Return B = I + Y P^-1 Y'."""
    identity = torch.eye(whitened.shape[-2], dtype=whitened.dtype, device=whitened.device)
    return identity + whitened @ prior.solve(whitened.mT)
