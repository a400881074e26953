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

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.linalg.cholesky import cholesky, logdet, solve_lower, solve_lower_transposed
from inducing.linalg.noise import standard_normal
from inducing.linalg.precision import Precision

Form = Literal["auto", "primal", "dual"]


class PseudoOutputs(NamedTuple):
    """The pseudo-likelihood v | w ~ N(X w, Lambda^-1).

    Arguments:
        values: v, one column per output.
        root: L with Lambda = LL'. A diagonal as (G, n), a lower triangular matrix as (G, n, n); G is 1 if all outputs
            share it, else the number of outputs.
    """

    values: Float[Tensor, "n O"]
    root: Float[Tensor, "G n"] | Float[Tensor, "G n n"]

    def whiten_inputs(self, inputs: Float[Tensor, "#S n F"]) -> Float[Tensor, "#S G n F"]:
        """Y = L'X."""
        return self._whiten(inputs[:, None])

    def whiten_values(self) -> Float[Tensor, "1 G n C"]:
        """t = L'v."""
        values = self.values[None] if self.root.shape[0] == 1 else self.values.mT[..., None]
        return self._whiten(values[None])

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
    """
    rows, features = inputs.shape[-2:]
    whitened, targets = pseudo_outputs.whiten_inputs(inputs), pseudo_outputs.whiten_values()
    groups, outputs = targets.shape[1], targets.shape[3]
    noise = standard_normal((num_samples, groups, features, outputs), whitened, generator)
    # nF^2 + F^3/3 operations against n^2F + n^3/3
    if form == "primal" or (form == "auto" and features <= rows):
        # Y'Y and Y't
        weights, kl = sample_primal(whitened.mT @ whitened, whitened.mT @ targets, prior, noise, closed_form_kl)
    else:
        row_noise = standard_normal((num_samples, groups, rows, outputs), whitened, generator)
        weights, kl = sample_dual(whitened, targets, prior, noise, row_noise, closed_form_kl)
    # (S, 1, F, O) or (S, O, F, 1) to (S, F, O)
    weights = weights[:, 0] if groups == 1 else weights[..., 0].mT
    return WeightSample(weights, kl.expand(num_samples))


def sample_primal(
    gram: Float[Tensor, "#S G F F"],
    cross: Float[Tensor, "#S G F C"],
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    closed_form_kl: bool = False,
) -> tuple[Float[Tensor, "S G F C"], Float[Tensor, "#S"]]:
    """The primal form, from ``gram = Y'Y`` and ``cross = Y't`` alone."""
    groups, features, columns = noise.shape[1:]
    # A = P + Y'Y = TT'
    factor = cholesky(prior.add_to(gram))
    # T^-1 Y't
    projected = solve_lower(factor, cross)
    # w = A^-1 Y't + T^-T z
    weights = solve_lower_transposed(factor, projected + noise)
    # logdet(A)/2 - logdet(P)/2, for every output
    volume = columns * (logdet(factor).sum(-1) - groups * prior.logdet()) / 2
    if closed_form_kl:
        # tr(P A^-1) = tr(T^-1 P T^-T)
        identity = torch.eye(features, dtype=factor.dtype, device=factor.device).expand(1, groups, -1, -1)
        trace = columns * prior.quadratic(solve_lower_transposed(factor, identity))
        mean = solve_lower_transposed(factor, projected)
        return weights, volume + (prior.quadratic(mean) + trace - groups * columns * features) / 2
    # KL sample = logdet(A)/2 - |z|^2/2 + w'Pw/2 - logdet(P)/2
    return weights, volume + (prior.quadratic(weights) - noise.square().sum((1, 2, 3))) / 2


def sample_dual(
    whitened: Float[Tensor, "#S G n F"],
    targets: Float[Tensor, "1 G n C"],
    prior: Precision,
    noise: Float[Tensor, "S G F C"],
    row_noise: Float[Tensor, "S G n C"],
    closed_form_kl: bool = False,
) -> tuple[Float[Tensor, "S G F C"], Float[Tensor, "#S"]]:
    """The dual form, from ``whitened = Y = L'X`` and ``targets = t = L'v``."""
    rows, columns = targets.shape[2:]
    identity = torch.eye(rows, dtype=whitened.dtype, device=whitened.device)
    # P^-1 Y'
    back = prior.solve(whitened.mT)
    # B = I + Y P^-1 Y' = TT'
    factor = cholesky(identity + whitened @ back)
    # w0 ~ prior, then Matheron's rule: w = w0 + P^-1 Y's, s = B^-1 (t - Y w0 + e)
    prior_weights = prior.colour(noise)
    residual = targets - whitened @ prior_weights + row_noise
    dual = solve_lower_transposed(factor, solve_lower(factor, residual))
    weights = prior_weights + back @ dual
    projected = solve_lower(factor, targets)
    if closed_form_kl:
        # tr(P A^-1) - F = tr(B^-1) - n;   mean = P^-1 Y' B^-1 t
        inverse = solve_lower(factor, identity.expand(1, targets.shape[1], -1, -1))
        mean = back @ solve_lower_transposed(factor, projected)
        per_output = logdet(factor) + inverse.square().sum((-2, -1)) - rows
        return weights, (columns * per_output.sum(-1) + prior.quadratic(mean)) / 2
    # KL sample = logdet(B)/2 + |T^-1 t|^2/2 - |s - e|^2/2, since L'(v - Xw) = s - e
    spread = projected.square().sum((1, 2, 3)) - (dual - row_noise).square().sum((1, 2, 3))
    return weights, (columns * logdet(factor).sum(-1) + spread) / 2
