"""Posteriors by Bayesian regression on inducing points: local (independent layers) and global (the paper's).

The posterior is the prior times a pseudo-likelihood with learned pseudo-outputs V and precisions Lambda:

    Q(w | X)  proportional to  N(V; X w, Lambda^-1) N(w; 0, P^-1)

X are the inducing inputs. They are learned for each layer (`LocalInducing`), or are the global inducing points propagated
through the layers below (`GlobalInducing`), which correlates the layers. For a Gaussian process, X w is the vector u of its
values at the inducing inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.cholesky import factorise
from inducing.linalg.conditional import condition
from inducing.linalg.density import regression_log_density
from inducing.linalg.noise import initial_normal, standard_normal
from inducing.linalg.precision import Precision, ScaledIdentity
from inducing.linalg.primal import primal_kl
from inducing.linalg.pseudo_likelihood import PseudoOutputs, by_output
from inducing.linalg.regression import WeightSample, regress
from inducing.nn.by_name import KLKind, check_choice
from inducing.nn.context import DrawContext
from inducing.nn.posteriors import base
from inducing.nn.posteriors.convolution import ConvolvedWeights
from inducing.nn.posteriors.pseudo_likelihood import PrecisionKind, PseudoLikelihood


class InducingPosterior(base.WeightPosterior, base.ValuePosterior):
    """Base class of posteriors with a pseudo-likelihood."""

    precision: PrecisionKind | None
    kl: KLKind

    def __post_init__(self) -> None:
        if self.precision is not None:
            check_choice("precision", self.precision, PrecisionKind)
        check_choice("kl", self.kl, KLKind)


@dataclass(frozen=True)
class LocalInducing(InducingPosterior):
    """Regression on inducing inputs that are learned for each layer. There is no correlation between layers.

    Arguments:
        num_inducing: Number of the layer's inducing inputs. Default: the fan-in.
        precision: Precisions of the pseudo-outputs: "shared" by all outputs, "per_output", "full" (M x M) or
            "full_per_output". Default: "shared" in layers of weights, "full_per_output" in Gaussian process layers.
        log_precision: Initial log-precision. Default: the paper's, 0 in the last layer and -4 elsewhere (0 in all Gaussian
            process layers).
        kl: One "sample" of log Q - log P, or "closed_form".
    """

    num_inducing: int | None = None
    precision: PrecisionKind | None = None
    log_precision: float | None = None
    kl: KLKind = "sample"

    def __post_init__(self) -> None:
        super().__post_init__()
        base.check_number(self.num_inducing)

    def build_weights(self, context: base.WeightContext) -> InducingWeights:
        fan_in, generator = context.layout.fan_in, context.network.generator
        rows = self.num_inducing or fan_in
        inputs = initial_normal(rows, fan_in, generator=generator)
        outputs = initial_normal(rows, context.out_features, generator=generator)
        log_precision = context.initial_log_precision(self.log_precision)
        return InducingWeights(outputs, inputs, self.precision or "shared", log_precision, self.kl == "closed_form")

    def build_values(self, context: base.ValueContext) -> InducingValues:
        inputs = context.initial_inputs(self.num_inducing)
        outputs = context.initial_pseudo_outputs(len(inputs))
        # the paper's appendix on deep GPs: 0 in every layer
        log_precision = 0.0 if self.log_precision is None else self.log_precision
        precision = self.precision or "full_per_output"
        return InducingValues(outputs, inputs, precision, log_precision, self.kl == "closed_form")


@dataclass(frozen=True)
class GlobalInducing(InducingPosterior):
    """Regression on inducing points propagated from the layers below (Eq. 11 of the paper). Layers are correlated.

    Arguments:
        precision: Precisions of the pseudo-outputs: "shared" by all outputs, "per_output", "full" (M x M) or
            "full_per_output". Default: "shared" in layers of weights, "full_per_output" in Gaussian process layers.
        log_precision: Initial log-precision. Default: the paper's, 0 in the last layer and -4 elsewhere (2 in Gaussian
            process layers with an identity mean, which then start close to their mean function and learn faster).
        kl: One "sample" of log Q - log P, or "closed_form" given the inducing activations.
    """

    needs_inducing: ClassVar[bool] = True

    precision: PrecisionKind | None = None
    log_precision: float | None = None
    kl: KLKind = "sample"

    def build_weights(self, context: base.WeightContext) -> InducingWeights | ConvolvedWeights:
        rows, generator = context.network.num_inducing, context.network.generator
        assert rows is not None
        precision, closed_form = self.precision or "shared", self.kl == "closed_form"
        log_precision = context.initial_log_precision(self.log_precision)
        if context.geometry is not None:
            return ConvolvedWeights.build(context, rows, precision, log_precision, closed_form)
        if context.targets is None:
            outputs = initial_normal(rows, context.out_features, generator=generator)
        else:
            outputs = context.targets.clone()
        return InducingWeights(outputs, None, precision, log_precision, closed_form)

    def build_values(self, context: base.ValueContext) -> InducingValues:
        assert context.network.num_inducing is not None
        outputs = context.initial_pseudo_outputs(context.network.num_inducing)
        log_precision = context.initial_log_precision(self.log_precision)
        precision = self.precision or "full_per_output"
        return InducingValues(outputs, None, precision, log_precision, self.kl == "closed_form")


class InducingWeights(PseudoLikelihood, base.WeightModule):
    """Posterior over the weights of a linear layer: regression of pseudo-outputs on inducing inputs."""

    sampled_kl_has_low_variance = True

    def forward(self, inputs: Float[Tensor, "#S M F"] | None, prior: Precision, context: DrawContext) -> WeightSample:
        if self.inducing_inputs is not None:
            inputs = self.inducing_inputs[None]
        assert inputs is not None
        return regress(
            inputs,
            self.pseudo_data(),
            prior,
            context.num_samples,
            generator=context.generator,
            closed_form_kl=self.uses_closed_form_kl or context.closed_form_regressions,
        )

    def log_density(
        self,
        weights: Float[Tensor, "S F O"],
        inputs: Float[Tensor, "#S M *F"] | None,
        prior: Precision,
        context: DrawContext,
    ) -> Float[Tensor, " S"]:
        if self.inducing_inputs is not None:
            inputs = self.inducing_inputs[None]
        assert inputs is not None
        return regression_log_density(weights, inputs, self.pseudo_data(), prior)

    def outputs_at(self, inputs: Float[Tensor, "1 M F"], weights: Float[Tensor, "F O"]) -> Float[Tensor, "M O"]:
        """The pseudo-outputs whose regression gives these weights."""
        return inputs[0] @ weights


class InducingValues(PseudoLikelihood, base.ValueModule):
    """Posterior over the values of a Gaussian process: regression of pseudo-outputs on the values (Algorithm 2)."""

    # with the gradient of a sampled KL, the experiment `compositional-dgp` ends at an ELBO of 0.42 instead of 0.97 nats per
    # data point; on UCI data the ELBOs are equal, and a step takes up to 20 % less time
    sampled_kl_has_low_variance = False

    def forward(self, prior: base.ValuePrior, context: DrawContext, integrate: bool = False) -> base.ValueSample:
        return regress_values(self.pseudo_data(), prior, context, self.uses_closed_form_kl, integrate)

    def log_density(
        self, whitened: Float[Tensor, "S M O"], prior: base.ValuePrior, context: DrawContext
    ) -> Float[Tensor, " S"]:
        return regressed_value_density(whitened, self.pseudo_data(), prior)


def regress_values(
    pseudo_outputs: PseudoOutputs, prior: base.ValuePrior, context: DrawContext, closed_form_kl: bool, integrate: bool
) -> base.ValueSample:
    """Sample from Q(u) proportional to N(v; u, Lambda^-1) N(u; m, K): v - m | a ~ N(R a, Lambda^-1), a ~ N(0, I)."""
    root, data, identity = _as_regression(pseudo_outputs, prior)
    if not integrate:
        closed_form_kl = closed_form_kl or context.closed_form_regressions
        samples, generator = context.num_samples, context.generator
        regressed = regress(root, data, identity, samples, generator=generator, closed_form_kl=closed_form_kl)
        return base.ValueSample(*regressed)
    groups, columns = data.layout
    noise = standard_normal((context.num_samples, groups, root.shape[-1], columns), root, context.generator)
    # A = I + R' Lambda R = TT'
    gram, cross, _ = data.statistics(root)
    conditional = condition(*factorise(identity.add_to(gram)), cross, noise, moments=True)
    assert conditional.mean is not None
    assert conditional.root is not None
    kl = primal_kl(conditional, identity, noise, closed_form_kl or context.closed_form_kl)
    # E[a] = A^-1 R' Lambda (v - m),   V[a] = A^-1 = T^-T T^-1
    moments = by_output(conditional.mean), conditional.root.to(pseudo_outputs.values.dtype)
    return base.ValueSample(by_output(conditional.draw), kl.expand(context.num_samples), *moments)


def regressed_value_density(
    whitened: Float[Tensor, "S M O"], pseudo_outputs: PseudoOutputs, prior: base.ValuePrior
) -> Float[Tensor, " S"]:
    """Return log Q of given whitened values, for the posterior of `regress_values`."""
    root, data, identity = _as_regression(pseudo_outputs, prior)
    return regression_log_density(whitened, root, data, identity)


def _as_regression(
    pseudo_outputs: PseudoOutputs, prior: base.ValuePrior
) -> tuple[Float[Tensor, "#S M M"], PseudoOutputs, ScaledIdentity]:
    """Return the inputs R, the pseudo-outputs v - m, and the prior precision I of the regression of whitened values."""
    root, data = prior.root, pseudo_outputs.to(torch.float64)
    return root, data._replace(values=data.values - prior.mean), ScaledIdentity(root.new_ones(1), root.shape[-1])
