"""Gaussian posteriors over the values at global inducing points that are independent of the layers below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.linalg.cholesky import logdet, solve_lower
from inducing.linalg.density import standard_log_density
from inducing.linalg.noise import initial_normal, standard_normal
from inducing.nn.by_name import KLKind, check_choice
from inducing.nn.context import DrawContext
from inducing.nn.likelihoods import FIRST_VARIANCE
from inducing.nn.parameterisation import LOG_PRECISION_SCALE, lower_triangular
from inducing.nn.posteriors.base import ValueContext, ValueModule, ValuePosterior, ValuePrior, ValueSample, check_scale
from inducing.nn.posteriors.whitened import multiply_by_output, solve_by_output


@dataclass(frozen=True)
class CoupledInducing(ValuePosterior):
    """Posterior with inducing points propagated from the layers below, but q(u) = N(m, S) independent of them.

    Functions of neighbouring layers are correlated, since they share inducing values. Functions further apart are not
    (Ustyuzhaninov et al., 2019; panel B of the paper's figure of graphical models).

    Arguments:
        initial_scale: Initial standard deviation of the values relative to the prior's. Default: 1e-5 in all layers except
            the last. The last layer starts at the exact posterior given the inducing targets, or at 1 without targets.
        kl: One "sample" of log Q - log P, or "closed_form" given the inducing activations.
    """

    needs_inducing: ClassVar[bool] = True

    initial_scale: float | None = None
    kl: KLKind = "sample"

    def __post_init__(self) -> None:
        check_scale(self.initial_scale)
        check_choice("kl", self.kl, KLKind)

    def build_values(self, context: ValueContext) -> CoupledValues:
        rows, outputs = context.network.num_inducing, context.out_features
        assert rows is not None
        # if the inducing points are unknown, the reference is a prior of independent values
        root = torch.eye(rows) if context.root is None else context.root.clone()
        if context.mean is not None:
            mean = context.mean.clone()
        elif context.is_last:
            mean = torch.zeros(rows, outputs)
        else:
            # a draw from the prior, since layers above need distinct inputs
            mean = root @ initial_normal(rows, outputs, generator=context.network.generator).to(root)
        relative_mean = torch.zeros(rows, outputs).to(root)
        relative_root = context.initial_scale(self.initial_scale) * torch.eye(rows).to(root)
        if context.targets is not None and self.initial_scale is None:
            # the exact posterior of one layer: A = I + R_0'R_0 / noise, b = A^-1 R_0'(y - m_0) / noise, TT' = A^-1
            gram = torch.eye(rows).to(root) + root.mT @ root / FIRST_VARIANCE
            inverse = torch.linalg.inv(gram.double())
            relative_mean = (inverse @ (root.mT @ (context.targets - mean) / FIRST_VARIANCE).double()).to(root)
            relative_root = torch.linalg.cholesky(inverse).to(root)
        return CoupledValues(mean, root, relative_mean, relative_root, self.kl == "closed_form")


class CoupledValues(ValueModule):
    """u ~ N(mean, CC'), independently of the inducing inputs.

    The moments are stored relative to the prior at the initial inducing inputs, mean = m_0 + R_0 b and C = R_0 T. This fixed
    change of coordinates improves the conditioning. u is still independent of the layers below.

    Arguments:
        reference_mean: m_0.
        reference_root: R_0.
        relative_mean: Initial b.
        relative_root: Initial T.
        closed_form_kl: Whether the KL is computed in closed form.
    """

    inducing_inputs = None
    reference_mean: Tensor
    reference_root: Tensor

    def __init__(
        self,
        reference_mean: Float[Tensor, "M O"],
        reference_root: Float[Tensor, "M M"],
        relative_mean: Float[Tensor, "M O"],
        relative_root: Float[Tensor, "M M"],
        closed_form_kl: bool = False,
    ) -> None:
        super().__init__()
        outputs, diagonal = reference_mean.shape[1], relative_root.diagonal()
        self.uses_closed_form_kl = closed_form_kl
        self.register_buffer("reference_mean", reference_mean)
        self.register_buffer("reference_root", reference_root)
        self.relative_mean = nn.Parameter(relative_mean)
        self.scaled_log_scale = nn.Parameter((diagonal.log() / LOG_PRECISION_SCALE).repeat(outputs, 1))
        self.root_lower = nn.Parameter((relative_root / diagonal[:, None]).tril(-1).repeat(outputs, 1, 1))

    def forward(self, prior: ValuePrior, context: DrawContext, integrate: bool = False) -> ValueSample:
        root, closed_form_kl = prior.root, self.uses_closed_form_kl or context.closed_form_kl
        reference = self.reference_root.double()
        spread = self._spread()
        relative = self.relative_mean.double()
        noise = standard_normal((context.num_samples, *relative.shape), relative, context.generator)
        # a = R^-1 (u - m),   u = m_0 + R_0 (b + T z)
        centred = self.reference_mean.double() - prior.mean
        centre = _solve(root, centred + reference @ relative)
        whitened = centre + _solve(root, reference @ multiply_by_output(spread, noise))
        volume = self._volume(root)
        # R^-1 C, the root of V[a]
        of_noise = solve_lower(root[:, None], (reference @ spread)[None]) if integrate or closed_form_kl else None
        if closed_form_kl and of_noise is not None:
            # E|a|^2 = |E a|^2 + |R^-1 C|^2
            moment = centre.square().sum((1, 2)) + of_noise.square().sum((1, 2, 3))
            kl = volume + (moment - relative.numel()) / 2
        else:
            kl = volume + (whitened.square() - noise.square()).sum((1, 2)) / 2
        sample = ValueSample(whitened, kl.expand(context.num_samples))
        return sample._replace(mean=centre, spread=of_noise) if integrate else sample

    def log_density(
        self, whitened: Float[Tensor, "S M O"], prior: ValuePrior, context: DrawContext
    ) -> Float[Tensor, " S"]:
        # z = T^-1 (R_0^-1 (u - m_0) - b),   u = m + R a
        values = prior.mean + prior.root @ whitened - self.reference_mean.double()
        relative = torch.linalg.solve_triangular(self.reference_root.double(), values, upper=False)
        noise = solve_by_output(self._spread(), relative - self.relative_mean.double())
        return standard_log_density(noise) + self._volume(prior.root)

    def _spread(self) -> Float[Tensor, "O M M"]:
        """Return T of each output."""
        scale = (LOG_PRECISION_SCALE * self.scaled_log_scale.double()).exp()
        return lower_triangular(scale, self.root_lower.double())

    def _volume(self, root: Float[Tensor, "#S M M"]) -> Float[Tensor, "#S"]:
        """Return log|K| / 2 - log|C|, summed over outputs."""
        outputs = self.relative_mean.shape[1]
        volume = outputs * logdet(root) / 2 - LOG_PRECISION_SCALE * self.scaled_log_scale.double().sum()
        return volume - outputs * self.reference_root.double().diagonal().log().sum()


def _solve(root: Float[Tensor, "#S M M"], right: Float[Tensor, "#S M O"]) -> Float[Tensor, "#S M O"]:
    return solve_lower(root[:, None], right[:, None])[:, 0]
