"""Bayesian linear regression of pseudo-outputs on inducing activations, which all layers with inducing points use.

Prior w ~ N(0, P^-1), pseudo-likelihood v | w ~ N(X w, Lambda^-1), Lambda = LL'. X has n rows and F columns. With the
whitened rows Y = L'X and t = L'v the posterior is

    primal (F <= n)   A = P + Y'Y,        w = A^-1 Y't + T^-T z,                    A = TT', z ~ N(0, I)
    dual   (n <  F)   B = I + Y P^-1 Y',  w = w0 + P^-1 Y's,  s = B^-1 (t - Y w0 + e),  w0 ~ prior, e ~ N(0, I)

at a cost of min(F, n)^3. Each form computes log Q(w) - log P(w) of its sample in a way that is accurate in float32. The
difference log N(v; Xw, Lambda^-1) - log N(v; 0, X P^-1 X' + Lambda^-1) is equal by Bayes' rule, but it loses tens to
hundreds of nats at high precisions. A problem in float32 whose KL would have an error above 0.05 nats (convolutions: see
`regress_statistics`), as estimated by `inducing.linalg.rounding`, is solved in float64. Gradients are those of
`inducing.linalg.reparameterisation`. In the primal form, KLs in closed form and exact posteriors are differentiated
directly.

References:
    Ober & Aitchison, Global inducing point variational posteriors (2021), Eq. 11 and Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.checks import is_known
from inducing.linalg.cholesky import (
    Factorisation,
    factorise,
    factorise_without_jitter,
    logdet,
    multiply_lower,
    solve_lower,
    solve_lower_transposed,
)
from inducing.linalg.conditional import Conditional, condition
from inducing.linalg.noise import standard_normal
from inducing.linalg.precision import Precision
from inducing.linalg.pseudo_likelihood import PseudoOutputs, by_group, by_output
from inducing.linalg.reparameterisation import Pulled, Solution, follow
from inducing.linalg.rounding import MAX_KL_ERROR, dual_rounding, max_kl_error_of_convolution, primal_rounding

Form = Literal["auto", "primal", "dual"]
# X' Lambda X and X' Lambda v in a dtype
Statistics = Callable[[torch.dtype], tuple[Float[Tensor, "#S G F F"], Float[Tensor, "#S G F C"]]]


class StatisticsSolution(NamedTuple):
    """A draw from X' Lambda X and X' Lambda v, and the values that its gradient needs, as in `Solution`.

    Arguments:
        draw: w.
        middle: u = (m + w) / 2.
        kl: log Q(w) - log P(w).
        pull: Computes g = A^-1 w~ from the gradients with respect to w and to the KL.
    """

    draw: Float[Tensor, "S F O"]
    middle: Float[Tensor, "S F O"]
    kl: Float[Tensor, " S"]
    pull: Callable[[Tensor | None, Tensor | None], Tensor]


# a draw and its KL with gradients, in a dtype
WithGradients = Callable[[StatisticsSolution, torch.dtype], tuple[Float[Tensor, "S F O"], Float[Tensor, " S"]]]


class WeightSample(NamedTuple):
    """Sampled weights, and log Q - log P of each sample (or its expectation over this layer, in closed form)."""

    weights: Float[Tensor, "S F O"]
    kl: Float[Tensor, " S"]


def regress(
    inputs: Float[Tensor, "#S n F"],
    pseudo_outputs: PseudoOutputs,
    prior: Precision,
    num_samples: int,
    *,
    generator: Generator | None = None,
    closed_form_kl: bool = False,
    exact: bool = False,
    form: Form = "auto",
) -> WeightSample:
    """Sample weights from Q(w) proportional to N(v; X w, Lambda^-1) N(w; 0, P^-1), with their KL.

    Arguments:
        inputs: X. A leading axis of 1 means that all samples share X; the factorisation is then computed once.
        pseudo_outputs: v and Lambda.
        prior: P.
        num_samples: S.
        generator: Source of the noise.
        closed_form_kl: Return the KL given X in closed form instead of one sample of log Q - log P.
        exact: Whether Q is the exact posterior of a likelihood. Then log p(v | w) + log P(w) - log Q(w) is the evidence
            for every draw. The same holds for its gradient only if draw and density are differentiated directly, so
            the primal form does this instead of using `inducing.linalg.reparameterisation`. The dual form ignores it.
        form: "primal", "dual", or "auto" for the cheaper one.
    """
    rows, features = inputs.shape[-2:]
    # nF^2 + F^3/3 operations against n^2F + n^3/3
    primal = form == "primal" or (form == "auto" and features <= rows)
    groups, columns = pseudo_outputs.layout
    noise = standard_normal((num_samples, groups, features, columns), inputs, generator)
    row_noise = None if primal else standard_normal((num_samples, groups, rows, columns), inputs, generator)
    checked = inputs.dtype == torch.float32 and is_known(inputs)
    solved = _solve(inputs, pseudo_outputs, prior, noise, row_noise, closed_form_kl, exact, checked)
    if solved is None:
        wide = None if row_noise is None else row_noise.double()
        pseudo_outputs, prior = pseudo_outputs.to(torch.float64), prior.to(torch.float64)
        solved = _solve(inputs.double(), pseudo_outputs, prior, noise.double(), wide, closed_form_kl, exact, False)
        assert solved is not None
    weights, kl = (tensor.to(inputs.dtype) for tensor in solved)
    return WeightSample(weights, kl.expand(num_samples))


def regress_statistics(
    statistics: Statistics,
    dtype: torch.dtype,
    num_terms: int,
    prior: Precision,
    num_samples: int,
    *,
    with_gradients: WithGradients,
    generator: Generator | None = None,
    closed_form_kl: bool = False,
) -> WeightSample:
    """Sample weights in the primal form from X' Lambda X and X' Lambda v, without X.

    A problem that is too inaccurate in float32 is solved again in float64. This includes the statistics, since rounding
    them to float32 is the cause of the error. An error of the KL is accepted up to 0.05 nats or a hundredth of the standard
    deviation of a sampled KL, which is tens of nats in wide convolutions.

    Arguments:
        statistics: Computes X' Lambda X and X' Lambda v in a dtype.
        dtype: Dtype of the weights.
        num_terms: Length of the float32 sums in the statistics. Their rounding errors grow with it.
        prior: P.
        num_samples: S.
        with_gradients: Returns a draw and its KL with the gradients of `inducing.linalg.reparameterisation`, in a dtype.
        generator: Source of the noise.
        closed_form_kl: Return the KL given X in closed form instead of one sample of log Q - log P. Gradients are then
            propagated through the statistics.
    """
    with torch.set_grad_enabled(closed_form_kl and torch.is_grad_enabled()):
        found = statistics(dtype)
    groups, features, columns = found[1].shape[1:]
    noise = standard_normal((num_samples, groups, features, columns), found[0], generator)
    max_error = max_kl_error_of_convolution(noise[0].numel())

    def solve(gram: Tensor, cross: Tensor, num_terms: int | None) -> tuple[Tensor, Tensor] | None:
        # a copy, since a precision caches its factor, and a factor computed without gradients has none
        problem = gram, cross, prior.to(gram.dtype), noise.to(gram.dtype)
        if closed_form_kl:
            sampled = _solve_statistics(*problem, True, num_terms, max_error)
            return None if sampled is None else (by_output(sampled[0]), sampled[1])

        def is_accurate(posterior: Factorisation, draw: Tensor) -> bool:
            assert num_terms is not None
            return primal_rounding(posterior, problem[2], draw, num_terms).is_small(max_error)

        with torch.no_grad():
            solution = solve_statistics(*problem, None if num_terms is None else is_accurate)
        return None if solution is None else with_gradients(solution, gram.dtype)

    solved = solve(*found, num_terms if dtype == torch.float32 and is_known(found[0]) else None)
    if solved is None:
        with torch.set_grad_enabled(closed_form_kl and torch.is_grad_enabled()):
            found = statistics(torch.float64)
        solved = solve(*found, None)
        assert solved is not None
    weights, kl = (tensor.to(dtype) for tensor in solved)
    return WeightSample(weights, kl.expand(num_samples))


def _solve(
    inputs: Float[Tensor, "#S n F"],
    pseudo_outputs: PseudoOutputs,
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    row_noise: Float[Tensor, "S G n C"] | None,
    closed_form_kl: bool,
    exact: bool,
    checked: bool,
) -> tuple[Float[Tensor, "S F O"], Float[Tensor, "#S"]] | None:
    """Sample in the dual form if `row_noise` is given, else in the primal form.

    Return None if `checked` and the result is inaccurate.
    """
    if (closed_form_kl or exact) and row_noise is None:
        gram, cross = pseudo_outputs.gram(inputs), pseudo_outputs.cross(inputs)
        num_terms = inputs.shape[-2] if checked else None
        sampled = _solve_statistics(gram, cross, prior, noise, closed_form_kl, num_terms)
        return None if sampled is None else (by_output(sampled[0]), sampled[1])
    with torch.no_grad():
        # a copy, since a precision caches its factor, and a factor computed here has no gradient
        problem = inputs, pseudo_outputs, prior.to(inputs.dtype), noise
        solution = solve_primal(*problem, checked) if row_noise is None else solve_dual(*problem, row_noise, checked)
    if solution is None:
        return None
    weights, kl = follow(solution, inputs, pseudo_outputs, prior)
    return weights, closed_form_dual_kl(inputs, pseudo_outputs, prior) if closed_form_kl else kl


def _solve_statistics(
    gram: Float[Tensor, "#S G F F"],
    cross: Float[Tensor, "#S G F C"],
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    closed_form_kl: bool,
    num_terms: int | None,
    max_kl_error: float = MAX_KL_ERROR,
) -> tuple[Float[Tensor, "S G F C"], Float[Tensor, "#S"]] | None:
    """Sample from X' Lambda X and X' Lambda v. Return None if `num_terms` is given and the result is inaccurate."""
    posterior = _factorise(prior.add_to(gram), checked=num_terms is not None)
    if posterior is None:
        return None
    weights, kl = sample_primal(posterior, cross, prior, noise, closed_form_kl)
    with torch.no_grad():
        if num_terms is not None:
            rounding = primal_rounding(posterior, prior, weights, num_terms)
            if not rounding.is_small(max_kl_error):
                return None
    return weights, kl


def _factorise(matrix: Float[Tensor, "#S G N N"], checked: bool) -> Factorisation | None:
    return factorise_without_jitter(matrix) if checked else factorise(matrix)


def sample_primal(
    posterior: Factorisation,
    cross: Float[Tensor, "#S G F C"],
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    closed_form_kl: bool = False,
) -> tuple[Float[Tensor, "S G F C"], Float[Tensor, "#S"]]:
    """Sample in the primal form from ``A = P + Y'Y = TT'`` and ``cross = Y't``."""
    # w = A^-1 Y't + T^-T z
    conditional = condition(*posterior, cross, noise, moments=closed_form_kl)
    return conditional.draw, primal_kl(conditional, prior, noise, closed_form_kl)


def primal_kl(
    conditional: Conditional, prior: Precision, noise: Float[Tensor, "S G F C"], closed_form: bool = False
) -> Float[Tensor, "#S"]:
    """Return log Q(w) - log P(w) of a draw from N(A^-1 c, A^-1), or its expectation, which needs the moments."""
    groups, features, columns = noise.shape[1:]
    # logdet(A) - logdet(P), for every output
    volume = columns * (conditional.logdet.sum(-1) - groups * prior.logdet())
    if closed_form:
        assert conditional.mean is not None
        assert conditional.root is not None
        # tr(P A^-1) = tr(T^-1 P T^-T)
        trace = columns * prior.quadratic(conditional.root)
        return (volume + prior.quadratic(conditional.mean) + trace - groups * columns * features) / 2
    # KL sample = logdet(A)/2 - |z|^2/2 + w'Pw/2 - logdet(P)/2
    return (volume + prior.quadratic(conditional.draw) - noise.square().sum((1, 2, 3))) / 2


def solve_primal(
    inputs: Float[Tensor, "#S n F"],
    pseudo_outputs: PseudoOutputs,
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    checked: bool = False,
) -> Solution | None:
    """Solve in the primal form. Return None if `checked` and the result is inaccurate."""

    def is_accurate(posterior: Factorisation, draw: Tensor) -> bool:
        size = torch.linalg.vector_norm(pseudo_outputs.whiten_values(), dim=(-2, -1))
        return primal_rounding(posterior, prior, draw, inputs.shape[-2], size).is_small()

    gram, cross = pseudo_outputs.gram(inputs), pseudo_outputs.cross(inputs)
    solution = solve_statistics(gram, cross, prior, noise, is_accurate if checked else None)
    if solution is None:
        return None

    def pull(to_draw: Tensor | None, to_kl: Tensor | None) -> Pulled:
        pulled = solution.pull(to_draw, to_kl)
        missing = pseudo_outputs.values - inputs @ solution.middle
        return Pulled(pulled, *(pseudo_outputs.whiten_outputs(rows) for rows in (inputs @ pulled, missing)))

    return Solution(solution.draw, solution.middle, solution.kl, pull)


def solve_statistics(
    gram: Float[Tensor, "#S G F F"],
    cross: Float[Tensor, "#S G F C"],
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    is_accurate: Callable[[Factorisation, Tensor], bool] | None = None,
) -> StatisticsSolution | None:
    """Solve in the primal form from Y'Y and Y't. Return None if the result is not accurate."""
    # A = P + Y'Y = TT'
    posterior = _factorise(prior.add_to(gram), checked=is_accurate is not None)
    if posterior is None:
        return None
    factor = posterior.factor

    # m = A^-1 Y't,   w = m + T^-T z
    projected = solve_lower(factor, cross)
    mean, draw = solve_lower_transposed(factor, projected), solve_lower_transposed(factor, projected + noise)
    if is_accurate is not None and not is_accurate(posterior, draw):
        return None
    kl = primal_kl(Conditional(draw, logdet(factor)), prior, noise)

    def pull(to_draw: Tensor | None, to_kl: Tensor | None) -> Tensor:
        # A^-1 b = T^-T T^-1 b,   where b adds kl~ (P w - A (w - m)) = kl~ (P w - T z) to w~
        slope = by_output(prior.matmul(draw) - multiply_lower(factor, noise))
        right = by_group(_add_scaled(to_draw, to_kl, slope), noise.shape[1])
        return by_output(solve_lower_transposed(factor, solve_lower(factor, right)))

    # u = (m + w) / 2
    return StatisticsSolution(by_output(draw), by_output(torch.lerp(mean, draw, 0.5)), kl, pull)


def solve_dual(
    inputs: Float[Tensor, "#S n F"],
    pseudo_outputs: PseudoOutputs,
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    row_noise: Float[Tensor, "S G n C"],
    checked: bool = False,
) -> Solution | None:
    """Solve in the dual form. Return None if `checked` and the result is inaccurate."""
    groups, _, columns = noise.shape[1:]
    whitened, targets = pseudo_outputs.whiten_inputs(inputs), pseudo_outputs.whiten_values()
    # B = I + Y P^-1 Y' = TT'
    evidence = _factorise(_evidence_matrix(whitened, prior), checked)
    if evidence is None:
        return None
    factor = evidence.factor

    def solve_evidence(rows: Tensor) -> Tensor:
        return solve_lower_transposed(factor, solve_lower(factor, rows))

    # w0 ~ prior, then Matheron's rule: w = w0 + P^-1 Y's, s = B^-1 (t - Y w0 + e)
    prior_weights = prior.colour(noise)
    residual = targets - whitened @ prior_weights + row_noise
    dual = solve_evidence(residual)
    draw = prior_weights + prior.solve(whitened.mT @ dual)
    # m = P^-1 Y' B^-1 t = P^-1 Y' T^-T (T^-1 t)
    projected = solve_lower(factor, targets)
    solved_targets = solve_lower_transposed(factor, projected)
    mean = prior.solve(whitened.mT @ solved_targets)
    if checked and not dual_rounding(evidence, solved_targets, dual, row_noise, inputs.shape[-1]).is_small():
        return None
    # KL sample = logdet(B)/2 + |T^-1 t|^2/2 - |s - e|^2/2, since L'(v - Xw) = s - e
    spread = projected.square().sum((1, 2, 3)) - (dual - row_noise).square().sum((1, 2, 3))
    kl = (columns * logdet(factor).sum(-1) + spread) / 2

    def pull(to_draw: Tensor | None, to_kl: Tensor | None) -> Pulled:
        # avoid inaccurate differences: P w - A (w - m) = Y'(s - e),   A^-1 Y' = P^-1 Y' B^-1
        pulled = rows = None
        if to_draw is not None:
            # A^-1 b = P^-1 (b - Y' B^-1 Y P^-1 b),   Y A^-1 b = B^-1 Y P^-1 b
            right = by_group(to_draw, groups)
            rows = solve_evidence(whitened @ prior.solve(right))
            pulled = prior.solve(right - whitened.mT @ rows)
        if to_kl is not None:
            ascent = prior.solve(whitened.mT @ solve_evidence(dual - row_noise))
            ascent_rows = solve_evidence(whitened @ prior.solve(whitened.mT @ (dual - row_noise)))
            pulled, rows = _add_scaled(pulled, to_kl, ascent), _add_scaled(rows, to_kl, ascent_rows)
        assert pulled is not None
        assert rows is not None
        # L'(v - X u) = (L'(v - X w) + L'(v - X m)) / 2 = (s - e + B^-1 t) / 2
        missing = (dual - row_noise + solved_targets) / 2
        return Pulled(by_output(pulled), by_output(rows), by_output(missing))

    return Solution(by_output(draw), by_output(torch.lerp(mean, draw, 0.5)), kl, pull)


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


def _add_scaled(
    first: Float[Tensor, "S ..."] | None, scale: Float[Tensor, " S"] | None, second: Float[Tensor, "S ..."]
) -> Tensor:
    """Return first + scale * second for each sample. Either term may be missing."""
    if scale is None:
        assert first is not None
        return first
    scaled = scale.view(-1, *(1,) * (second.ndim - 1)) * second
    return scaled if first is None else first + scaled


def _evidence_matrix(whitened: Float[Tensor, "#S G n F"], prior: Precision) -> Float[Tensor, "#S G n n"]:
    """Return B = I + Y P^-1 Y'."""
    identity = torch.eye(whitened.shape[-2], dtype=whitened.dtype, device=whitened.device)
    return identity + whitened @ prior.solve(whitened.mT)
