"""Bayesian linear regression of pseudo-outputs on inducing activations, which all layers with inducing points use.

Prior w ~ N(0, P^-1), pseudo-likelihood v | w ~ N(X w, Lambda^-1), Lambda = LL'. X has n rows and F columns. With the
whitened rows Y = L'X and t = L'v the posterior is

    Q(w) = N(A^-1 Y't, A^-1),   A = P + Y'Y

It is sampled in the primal form (`inducing.linalg.primal`, F <= n) or in the dual form (`inducing.linalg.dual`, n < F), at a
cost of min(F, n)^3. Each form computes log Q(w) - log P(w) of its sample in a way that is accurate in float32. The
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
from inducing.linalg.dual import closed_form_dual_kl, solve_dual
from inducing.linalg.noise import standard_normal
from inducing.linalg.precision import Precision
from inducing.linalg.primal import Accuracy, sample_primal, solve_primal
from inducing.linalg.pseudo_likelihood import PseudoOutputs, Statistics
from inducing.linalg.reparameterisation import Solution, with_gradients
from inducing.linalg.rounding import max_kl_error_of_convolution

Form = Literal["auto", "primal", "dual"]
# weights and their KL
Sample = tuple[Float[Tensor, "S F O"], Float[Tensor, "#S"]]
# a draw and its KL with gradients, in a dtype
WithGradients = Callable[[Solution, torch.dtype], Sample]


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
    is_primal = form == "primal" or (form == "auto" and features <= rows)
    groups, columns = pseudo_outputs.layout
    noise = standard_normal((num_samples, groups, features, columns), inputs, generator)
    row_noise = None if is_primal else standard_normal((num_samples, groups, rows, columns), inputs, generator)
    problem = _Problem(inputs, pseudo_outputs, prior, noise, row_noise)
    sampled = _sample(problem, closed_form_kl, exact, checked=inputs.dtype == torch.float32 and is_known(inputs))
    if sampled is None:
        # too inaccurate in float32
        sampled = _sample(problem.to(torch.float64), closed_form_kl, exact, checked=False)
    return _weight_sample(sampled, inputs.dtype, num_samples)


class _Problem(NamedTuple):
    """A regression in the primal form, or in the dual form if there is noise for the rows."""

    inputs: Float[Tensor, "#S n F"]
    pseudo_outputs: PseudoOutputs
    prior: Precision
    noise: Float[Tensor, "S G F C"]
    row_noise: Float[Tensor, "S G n C"] | None

    def to(self, dtype: torch.dtype) -> _Problem:
        return _Problem(
            self.inputs.to(dtype),
            self.pseudo_outputs.to(dtype),
            self.prior.to(dtype),
            self.noise.to(dtype),
            None if self.row_noise is None else self.row_noise.to(dtype),
        )


def _sample(problem: _Problem, closed_form_kl: bool, exact: bool, checked: bool) -> Sample | None:
    """Sample weights, with their KL. Return None if `checked` and the result is inaccurate."""
    inputs, pseudo_outputs, prior, noise, row_noise = problem
    accuracy = Accuracy(inputs.shape[-2]) if checked else None
    if row_noise is None and (closed_form_kl or exact):
        return sample_primal(pseudo_outputs.statistics(inputs), prior, noise, accuracy, closed_form_kl)
    with torch.no_grad():
        # a copy, since a precision caches its factor, and a factor computed here has no gradient
        fixed_prior = prior.to(inputs.dtype)
        if row_noise is None:
            solution = solve_primal(pseudo_outputs.statistics(inputs), fixed_prior, noise, accuracy)
        else:
            solution = solve_dual(inputs, pseudo_outputs, fixed_prior, noise, row_noise, checked)
    if solution is None:
        return None
    weights, kl = with_gradients(solution, inputs, pseudo_outputs, prior)
    return weights, closed_form_dual_kl(inputs, pseudo_outputs, prior) if closed_form_kl else kl


def regress_statistics(
    compute_statistics: Callable[[torch.dtype], Statistics],
    dtype: torch.dtype,
    num_terms: int,
    prior: Precision,
    num_samples: int,
    *,
    attach_gradients: WithGradients,
    generator: Generator | None = None,
    closed_form_kl: bool = False,
) -> WeightSample:
    """Sample weights in the primal form from X' Lambda X and X' Lambda v, without X.

    A problem that is too inaccurate in float32 is solved again in float64. This includes the statistics, since rounding
    them to float32 is the cause of the error. An error of the KL is accepted up to 0.05 nats or a hundredth of the standard
    deviation of a sampled KL, which is tens of nats in wide convolutions.

    Arguments:
        compute_statistics: Computes X' Lambda X and X' Lambda v in a dtype.
        dtype: Dtype of the weights.
        num_terms: Length of the float32 sums in the statistics. Their rounding errors grow with it.
        prior: P.
        num_samples: S.
        attach_gradients: Returns a draw and its KL with the gradients of `inducing.linalg.reparameterisation`, in a dtype.
        generator: Source of the noise.
        closed_form_kl: Return the KL given X in closed form instead of one sample of log Q - log P. Gradients are then
            propagated through the statistics.
    """

    def compute(dtype: torch.dtype) -> Statistics:
        with torch.set_grad_enabled(closed_form_kl and torch.is_grad_enabled()):
            return compute_statistics(dtype)

    first = compute(dtype)
    noise = standard_normal((num_samples, *first.cross.shape[1:]), first.gram, generator)

    def sample(statistics: Statistics, accuracy: Accuracy | None) -> Sample | None:
        own = statistics.gram.dtype
        problem = statistics, prior.to(own), noise.to(own), accuracy
        if closed_form_kl:
            return sample_primal(*problem, closed_form_kl)
        with torch.no_grad():
            solution = solve_primal(*problem)
        return None if solution is None else attach_gradients(solution, own)

    checked = dtype == torch.float32 and is_known(first.gram)
    accuracy = Accuracy(num_terms, max_kl_error_of_convolution(noise[0].numel())) if checked else None
    sampled = sample(first, accuracy)
    if sampled is None:
        sampled = sample(compute(torch.float64), None)
    return _weight_sample(sampled, dtype, num_samples)


def _weight_sample(sampled: Sample | None, dtype: torch.dtype, num_samples: int) -> WeightSample:
    assert sampled is not None
    weights, kl = (tensor.to(dtype) for tensor in sampled)
    return WeightSample(weights, kl.expand(num_samples))
