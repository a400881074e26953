"""The one regression that serves every layer: Bayesian linear regression of pseudo-outputs on inducing activations.

Prior w ~ N(0, P^-1), pseudo-likelihood v | w ~ N(X w, Lambda^-1), Lambda = LL'. X has n rows and F columns. With the
whitened rows Y = L'X and t = L'v the posterior is

    primal (F <= n)   A = P + Y'Y,        w = A^-1 Y't + T^-T z,                    A = TT', z ~ N(0, I)
    dual   (n <  F)   B = I + Y P^-1 Y',  w = w0 + P^-1 Y's,  s = B^-1 (t - Y w0 + e),  w0 ~ prior, e ~ N(0, I)

at a cost of min(F, n)^3. Each form returns log Q(w) - log P(w) of its sample in the arrangement that keeps its digits
in float32: evaluating log N(v; Xw, Lambda^-1) - log N(v; 0, X P^-1 X' + Lambda^-1) instead, which is the same by
Bayes' rule, loses tens to hundreds of nats at high precisions.

Weights are laid out as in `inducing.linalg.precision`: (S, G, F, C), with G = 1 if all outputs share Lambda and
G = outputs if each has its own.

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
    factorise_if_well_conditioned,
    logdet,
    solve_lower,
    solve_lower_transposed,
)
from inducing.linalg.conditional import Conditional, condition
from inducing.linalg.gram import weighted_grams
from inducing.linalg.noise import standard_normal
from inducing.linalg.precision import Precision

Form = Literal["auto", "primal", "dual"]
# X' Lambda X and X' Lambda v in a dtype
Statistics = Callable[[torch.dtype], tuple[Float[Tensor, "#S G F F"], Float[Tensor, "#S G F C"]]]


class PseudoOutputs(NamedTuple):
    """The pseudo-likelihood v | w ~ N(X w, Lambda^-1).

    Arguments:
        values: v, one column per output; with a leading axis where samples differ, as they do around the mean function
            of a Gaussian process.
        root: L with Lambda = LL'. A diagonal as (G, n), a lower triangular matrix as (G, n, n); G is 1 if all outputs
            share it, else the number of outputs.
    """

    values: Float[Tensor, "n O"] | Float[Tensor, "#S n O"]
    root: Float[Tensor, "G n"] | Float[Tensor, "G n n"]

    @property
    def layout(self) -> tuple[int, int]:
        """(G, C): groups of outputs that share Lambda, and outputs in each."""
        groups = self.root.shape[0]
        return groups, self.values.shape[-1] if groups == 1 else 1

    def to(self, dtype: torch.dtype) -> PseudoOutputs:
        """The same in another dtype."""
        return PseudoOutputs(self.values.to(dtype), self.root.to(dtype))

    def gram(self, inputs: Float[Tensor, "#S n F"]) -> Float[Tensor, "#S G F F"]:
        """X' Lambda X = Y'Y."""
        if self.root.ndim == 2 and 4 * len(self.root) > inputs.shape[-1]:
            # many outputs for the features: outer products of rows, which all outputs share, cost little beside the rest
            return weighted_grams(inputs, self.root.square())
        whitened = self.whiten_inputs(inputs)
        return whitened.mT @ whitened

    def cross(self, inputs: Float[Tensor, "#S n F"]) -> Float[Tensor, "#S G F C"]:
        """X' Lambda v = Y't."""
        if self.root.ndim == 3:
            return self.whiten_inputs(inputs).mT @ self.whiten_values()
        # one product for all outputs
        return by_group(inputs.mT @ (self.root.square().mT * self.values), len(self.root))

    def whiten_inputs(self, inputs: Float[Tensor, "#S n F"]) -> Float[Tensor, "#S G n F"]:
        """Y = L'X."""
        return self._whiten(inputs[:, None])

    def whiten_values(self) -> Float[Tensor, "#S G n C"]:
        """t = L'v."""
        values = self.values if self.values.ndim == 3 else self.values[None]
        return self._whiten(by_group(values, len(self.root)))

    def _whiten(self, rows: Float[Tensor, "#S #G n C"]) -> Float[Tensor, "#S G n C"]:
        return self.root[..., None] * rows if self.root.ndim == 2 else self.root.mT @ rows


class WeightSample(NamedTuple):
    """Weights, and log Q - log P of each sample of them (or its expectation over this layer, in closed form)."""

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
    form: Form = "auto",
    max_pivot_ratio: float | None = None,
) -> WeightSample:
    """Sample weights from Q(w) proportional to N(v; X w, Lambda^-1) N(w; 0, P^-1), with their KL.

    Arguments:
        inputs: X. A leading axis of 1 means that all samples share it, and then the work is done once.
        pseudo_outputs: v and Lambda.
        prior: P.
        num_samples: S.
        generator: Source of the noise.
        closed_form_kl: Return the KL given X in closed form instead of one sample of log Q - log P.
        form: The cheaper of the two forms, or one of them by name.
        max_pivot_ratio: In float32, a problem that is worse conditioned than this is solved in float64: one in which a
            column is explained by those before it to all but 1 / max_pivot_ratio, such as near-duplicate rows at a
            high precision. None stands for 3000 in the primal form and 100 in the dual, whose KL loses digits sooner.
    """
    rows, features = inputs.shape[-2:]
    # nF^2 + F^3/3 operations against n^2F + n^3/3
    primal = form == "primal" or (form == "auto" and features <= rows)
    groups, columns = pseudo_outputs.layout
    noise = standard_normal((num_samples, groups, features, columns), inputs, generator)
    row_noise = None if primal else standard_normal((num_samples, groups, rows, columns), inputs, generator)
    is_float32 = inputs.dtype == torch.float32 and is_known(inputs)
    limit = (max_pivot_ratio or (3000.0 if primal else 100.0)) if is_float32 else None
    solved = _solve(inputs, pseudo_outputs, prior, noise, row_noise, closed_form_kl, limit)
    if solved is None:
        wide = None if row_noise is None else row_noise.double()
        pseudo_outputs, prior = pseudo_outputs.to(torch.float64), prior.to(torch.float64)
        solved = _solve(inputs.double(), pseudo_outputs, prior, noise.double(), wide, closed_form_kl, None)
        assert solved is not None
    weights, kl = (tensor.to(inputs.dtype) for tensor in solved)
    return WeightSample(by_output(weights), kl.expand(num_samples))


def regress_statistics(
    statistics: Statistics,
    dtype: torch.dtype,
    prior: Precision,
    num_samples: int,
    *,
    generator: Generator | None = None,
    closed_form_kl: bool = False,
) -> WeightSample:
    """The primal form from X' Lambda X and X' Lambda v alone, where X is never made.

    In float32, a problem that has lost its digits is done again in float64, from the statistics on: rounding them to float32
    is what loses the digits.

    Arguments:
        statistics: Computes X' Lambda X and X' Lambda v in a dtype.
        dtype: Dtype of the weights.
        prior: P.
        num_samples: S.
        generator: Source of the noise.
        closed_form_kl: Return the KL given X in closed form instead of one sample of log Q - log P.
    """
    gram, cross = statistics(dtype)
    groups, features, columns = cross.shape[1:]
    noise = standard_normal((num_samples, groups, features, columns), gram, generator)
    # lower than for rows: sums over many pixels round more, and neighbouring pixels are alike
    limit = 100.0 if dtype == torch.float32 and is_known(gram) else None
    posterior = _factorise(prior.add_to(gram), limit)
    if posterior is None:
        prior, noise = prior.to(torch.float64), noise.double()
        gram, cross = statistics(torch.float64)
        posterior = factorise(prior.add_to(gram))
    weights, kl = (tensor.to(dtype) for tensor in sample_primal(posterior, cross, prior, noise, closed_form_kl))
    return WeightSample(by_output(weights), kl.expand(num_samples))


def by_output(weights: Float[Tensor, "#S G F C"]) -> Float[Tensor, "#S F O"]:
    """From groups of outputs to outputs: (S, 1, F, O) or (S, O, F, 1) to (S, F, O)."""
    return weights[:, 0] if weights.shape[1] == 1 else weights[..., 0].mT


def by_group(values: Float[Tensor, "#S F O"], groups: int) -> Float[Tensor, "#S G F C"]:
    """The inverse of `by_output`."""
    return values[:, None] if groups == 1 else values.mT[..., None]


def _solve(
    inputs: Float[Tensor, "#S n F"],
    pseudo_outputs: PseudoOutputs,
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    row_noise: Float[Tensor, "S G n C"] | None,
    closed_form_kl: bool,
    max_pivot_ratio: float | None,
) -> tuple[Float[Tensor, "S G F C"], Float[Tensor, "#S"]] | None:
    """Sample in the primal form, or given noise for the rows in the dual; None if the problem is too ill-conditioned."""
    if row_noise is None:
        # A = P + X' Lambda X = TT'
        posterior = _factorise(prior.add_to(pseudo_outputs.gram(inputs)), max_pivot_ratio)
        if posterior is None:
            return None
        return sample_primal(posterior, pseudo_outputs.cross(inputs), prior, noise, closed_form_kl)
    # B = I + Y P^-1 Y' = TT'
    whitened, targets = pseudo_outputs.whiten_inputs(inputs), pseudo_outputs.whiten_values()
    identity = torch.eye(inputs.shape[1], dtype=inputs.dtype, device=inputs.device)
    evidence = _factorise(identity + whitened @ prior.solve(whitened.mT), max_pivot_ratio)
    if evidence is None:
        return None
    return sample_dual(evidence.factor, whitened, targets, prior, noise, row_noise, closed_form_kl)


def _factorise(matrix: Float[Tensor, "#S G N N"], max_pivot_ratio: float | None) -> Factorisation | None:
    return factorise(matrix) if max_pivot_ratio is None else factorise_if_well_conditioned(matrix, max_pivot_ratio)


def sample_primal(
    posterior: Factorisation,
    cross: Float[Tensor, "#S G F C"],
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    closed_form_kl: bool = False,
) -> tuple[Float[Tensor, "S G F C"], Float[Tensor, "#S"]]:
    """The primal form, from ``A = P + Y'Y = TT'`` and ``cross = Y't`` alone."""
    # w = A^-1 Y't + T^-T z
    conditional = condition(*posterior, cross, noise, moments=closed_form_kl)
    return conditional.draw, primal_kl(conditional, prior, noise, closed_form_kl)


def primal_kl(
    conditional: Conditional, prior: Precision, noise: Float[Tensor, "S G F C"], closed_form: bool = False
) -> Float[Tensor, "#S"]:
    """log Q(w) - log P(w) of a draw from N(A^-1 c, A^-1), or its expectation, which needs the moments."""
    groups, features, columns = noise.shape[1:]
    # logdet(A)/2 - logdet(P)/2, for every output
    volume = columns * (conditional.logdet.sum(-1) - groups * prior.logdet()) / 2
    if closed_form:
        assert conditional.mean is not None
        assert conditional.root is not None
        # tr(P A^-1) = tr(T^-1 P T^-T)
        trace = columns * prior.quadratic(conditional.root)
        return volume + (prior.quadratic(conditional.mean) + trace - groups * columns * features) / 2
    # KL sample = logdet(A)/2 - |z|^2/2 + w'Pw/2 - logdet(P)/2
    return volume + (prior.quadratic(conditional.draw) - noise.square().sum((1, 2, 3))) / 2


def sample_dual(
    factor: Float[Tensor, "#S G n n"],
    whitened: Float[Tensor, "#S G n F"],
    targets: Float[Tensor, "#S G n C"],
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    row_noise: Float[Tensor, "S G n C"],
    closed_form_kl: bool = False,
) -> tuple[Float[Tensor, "S G F C"], Float[Tensor, "#S"]]:
    """The dual form, from the factor T of ``B = I + Y P^-1 Y' = TT'``, ``whitened = Y`` and ``targets = t``."""
    rows, columns = targets.shape[2:]
    # w0 ~ prior, then Matheron's rule: w = w0 + P^-1 Y's, s = B^-1 (t - Y w0 + e)
    prior_weights = prior.colour(noise)
    residual = targets - whitened @ prior_weights + row_noise
    dual = solve_lower_transposed(factor, solve_lower(factor, residual))
    weights = prior_weights + prior.solve(whitened.mT @ dual)
    # T^-1 t
    projected = solve_lower(factor, targets)
    if closed_form_kl:
        # tr(P A^-1) - F = tr(B^-1) - n;   mean = P^-1 Y' B^-1 t
        identity = torch.eye(rows, dtype=factor.dtype, device=factor.device).expand(1, targets.shape[1], -1, -1)
        inverse = solve_lower(factor, identity)
        mean = prior.solve(whitened.mT @ solve_lower_transposed(factor, projected))
        per_output = logdet(factor) + inverse.square().sum((-2, -1)) - rows
        return weights, (columns * per_output.sum(-1) + prior.quadratic(mean)) / 2
    # KL sample = logdet(B)/2 + |T^-1 t|^2/2 - |s - e|^2/2, since L'(v - Xw) = s - e
    spread = projected.square().sum((1, 2, 3)) - (dual - row_noise).square().sum((1, 2, 3))
    return weights, (columns * logdet(factor).sum(-1) + spread) / 2
