"""The exact posterior of the last layer given the layers below (Eq. 6 of the paper).

For a Gaussian likelihood it is Bayesian linear regression on the data (Eq. 8 and 9): pseudo-outputs V = Y, and Lambda is the
precision of the likelihood's noise, multiplied by the weight of each row. Nothing is learned. No other posterior of the last
layer has a better ELBO.

If the noise depends on the inputs, the outputs are [f | g]: f are means, and g determines the noise variances v(g). Given g,
the noise variances are known, so the posterior of the weights of f is exact, too:

    Q(w) = Q(w_g) P(w_f | y, g),    P(w_f | y, g) proportional to N(y; X w_f, diag v(g)) P(w_f)

Only Q(w_g) is learned, by pseudo-outputs as in other layers. No other Q(w_f | w_g) has a better ELBO.

A missing target (NaN) has precision zero, so each output is regressed on the rows where its target is observed.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.checks import check_finite
from inducing.linalg.density import regression_log_density
from inducing.linalg.precision import Precision
from inducing.linalg.pseudo_likelihood import PseudoOutputs
from inducing.linalg.regression import WeightSample, regress
from inducing.nn.context import DrawContext
from inducing.nn.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from inducing.nn.likelihoods.targets import fill_missing, may_be_missing
from inducing.nn.posteriors import base
from inducing.nn.posteriors.inducing import InducingWeights, regress_values, regressed_value_density


@dataclass(frozen=True)
class OptimalInducing(base.WeightPosterior, base.ValuePosterior):
    """The exact posterior of the last layer given the layers below, for a Gaussian likelihood (Eq. 8 of the paper).

    The inducing points are the training inputs and are not learned. The pseudo-outputs are the training targets. The
    precision is that of the likelihood's noise. Nothing is learned, and no other posterior of the last layer has a better
    ELBO. To draw such a network, pass its likelihood: ``network.draw(10, likelihood=likelihood)``.

    Arguments:
        heteroscedastic: Whether the likelihood is `HeteroscedasticGaussian`. This is supported in linear layers. The
            posterior of the means is then exact given the noise, and the weights of the noise are learned. The inducing
            targets are [y | g], with initial values g for the noise, such as 0.
    """

    heteroscedastic: bool = False

    needs_inducing: ClassVar[bool] = True

    def build_weights(self, context: base.WeightContext) -> OptimalWeights | HeteroscedasticWeights:
        if context.geometry is not None:
            raise ValueError(
                "an OptimalInducing posterior is not available in a convolution. Use it in a last Linear or GPLayer"
            )
        targets = self._targets(context)
        if not self.heteroscedastic:
            return OptimalWeights(targets)
        if targets.shape[-1] % 2:
            raise ValueError(
                "OptimalInducing(heteroscedastic=True) needs two outputs per target, mean and noise, "
                f"but the network has {targets.shape[-1]} outputs"
            )
        check_finite("the noise columns of inducing_targets", targets.chunk(2, -1)[1])
        return HeteroscedasticWeights(targets)

    def build_values(self, context: base.ValueContext) -> OptimalValues:
        if self.heteroscedastic:
            raise ValueError(
                "OptimalInducing(heteroscedastic=True) is not available in a GPLayer. Use it in a last Linear layer"
            )
        return OptimalValues(self._targets(context))

    def _targets(self, context: base.WeightContext | base.ValueContext) -> Float[Tensor, "M O"]:
        if not context.is_last:
            raise ValueError('an OptimalInducing posterior is for the last layer only. Use e.g. "global->optimal"')
        if context.targets is None:
            raise ValueError(
                "an OptimalInducing posterior needs the training data. Pass inducing_points=x, inducing_targets=y, "
                "learn_inducing_locations=False"
            )
        return context.targets


class OptimalModule(base.PosteriorModule, ABC):
    """Base class of posteriors that hold the training targets and need the likelihood for a draw.

    Arguments:
        targets: Y, one row for each inducing point. The inducing points are all training inputs. Some of several targets of
            a row may be missing (NaN).
    """

    # the likelihood for which the posterior is exact
    likelihood_class: ClassVar[type[Likelihood]]
    targets: Tensor
    row_weights: Tensor

    def __init__(self, targets: Float[Tensor, "M O"]) -> None:
        super().__init__()
        self.register_buffer("targets", targets)
        self.register_buffer("row_weights", torch.ones(len(targets)))

    def set_row_weights(self, weights: Float[Tensor, " M"]) -> None:
        """Set the weight of each row in the likelihood. A row with weight 2 counts as two rows."""
        self.row_weights.copy_(weights)

    def observed_roots(self, roots: Float[Tensor, "*S #M #O"]) -> Float[Tensor, "*S M #O"]:
        """Return roots of precisions times those of the row weights, and 0 where a target is missing."""
        roots = roots * self.row_weights.to(roots.dtype).sqrt()[:, None]
        if self.targets.is_meta or not may_be_missing(self.targets) or not (missing := self.targets.isnan()).any():
            return roots
        return torch.where(missing, 0.0, roots)

    def check_likelihood(self, likelihood: Likelihood | None) -> None:
        """Raise an error if the posterior is not exact for this likelihood."""
        wanted = self.likelihood_class.__name__
        if likelihood is None:
            raise ValueError(
                "an OptimalInducing posterior needs the noise variance of the likelihood. "
                f"Pass it, e.g. network.draw(10, likelihood=inducing.{wanted}())"
            )
        if not isinstance(likelihood, self.likelihood_class):
            raise TypeError(
                f"this OptimalInducing posterior is exact only for a {wanted} likelihood, got {type(likelihood).__name__}"
            )


class OptimalWeights(OptimalModule, base.WeightModule):
    """Posterior over the weights of a last linear layer under homoscedastic Gaussian noise."""

    likelihood_class = Gaussian
    sampled_kl_has_low_variance = True

    def forward(self, inputs: Float[Tensor, "#S M F"] | None, prior: Precision, context: DrawContext) -> WeightSample:
        assert inputs is not None
        return regress(
            inputs,
            as_pseudo_likelihood(self, context),
            prior,
            context.num_samples,
            generator=context.generator,
            closed_form_kl=context.closed_form_regressions,
            exact=True,
        )

    def log_density(
        self,
        weights: Float[Tensor, "S F O"],
        inputs: Float[Tensor, "#S M *F"] | None,
        prior: Precision,
        context: DrawContext,
    ) -> Float[Tensor, " S"]:
        assert inputs is not None
        return regression_log_density(weights, inputs, as_pseudo_likelihood(self, context), prior)


class OptimalValues(OptimalModule, base.ValueModule):
    """Posterior over the values of a last Gaussian process layer under homoscedastic Gaussian noise."""

    likelihood_class = Gaussian
    inducing_inputs = None

    def forward(self, prior: base.ValuePrior, context: DrawContext, integrate: bool = False) -> base.ValueSample:
        return regress_values(as_pseudo_likelihood(self, context), prior, context, False, integrate)

    def log_density(
        self, whitened: Float[Tensor, "S M O"], prior: base.ValuePrior, context: DrawContext
    ) -> Float[Tensor, " S"]:
        return regressed_value_density(whitened, as_pseudo_likelihood(self, context), prior)


class HeteroscedasticWeights(OptimalModule, base.WeightModule):
    """Posterior over the weights [w_f | w_g] of a last linear layer: exact for w_f given w_g, learned for w_g.

    Arguments:
        targets: [y | g], with initial pseudo-outputs g of the noise.
        log_precision: Initial log-precision of the pseudo-outputs of the noise.
    """

    likelihood_class = HeteroscedasticGaussian
    sampled_kl_has_low_variance = True

    def __init__(self, targets: Float[Tensor, "M outputs"], log_precision: float = 0.0) -> None:
        means, deviations = targets.chunk(2, -1)
        super().__init__(means.clone())
        self.of_noise = InducingWeights(deviations.clone(), None, "shared", log_precision, False)

    def forward(self, inputs: Float[Tensor, "#S M F"] | None, prior: Precision, context: DrawContext) -> WeightSample:
        assert inputs is not None
        of_noise = self.of_noise(inputs, prior, context)
        of_means = [
            regress(
                *problem,
                prior,
                context.num_samples,
                generator=context.generator,
                closed_form_kl=context.closed_form_regressions,
                exact=True,
            )
            for problem in self._regressions(inputs, of_noise.weights, context)
        ]
        weights = torch.cat([*(sample.weights for sample in of_means), of_noise.weights], -1)
        return WeightSample(weights, sum((sample.kl for sample in of_means), of_noise.kl))

    def log_density(
        self,
        weights: Float[Tensor, "S F O"],
        inputs: Float[Tensor, "#S M *F"] | None,
        prior: Precision,
        context: DrawContext,
    ) -> Float[Tensor, " S"]:
        assert inputs is not None
        of_means, of_noise = weights.double().chunk(2, -1)
        density = self.of_noise.log_density(of_noise, inputs, prior, context)
        for target, problem in enumerate(self._regressions(inputs.double(), of_noise, context)):
            density = density + regression_log_density(of_means[..., [target]], *problem, prior)
        return density

    def _regressions(
        self, inputs: Float[Tensor, "#S M F"], of_noise: Float[Tensor, "S F O"], context: DrawContext
    ) -> list[tuple[Float[Tensor, "S M F"], PseudoOutputs]]:
        """Return the regression of each target, with rows divided by the standard deviations of their noise."""
        self.check_likelihood(context.likelihood)
        assert isinstance(context.likelihood, HeteroscedasticGaussian)
        log_variance = context.likelihood.log_noise_variance(inputs @ of_noise)
        roots = self.observed_roots((-log_variance / 2).exp())
        targets = fill_missing(self.targets)
        # L'y ~ N(L'X w, I) with LL' = diag 1/v(g)
        return [
            (root * inputs, PseudoOutputs(root * targets[:, [target]], root.new_ones(1, root.shape[1])))
            for target, root in enumerate(roots.split(1, -1))
        ]


def as_pseudo_likelihood(module: OptimalModule, context: DrawContext) -> PseudoOutputs:
    """Return the likelihood as a pseudo-likelihood: V = Y, Lambda = row weight / noise variance."""
    module.check_likelihood(context.likelihood)
    assert isinstance(context.likelihood, Gaussian)
    # one precision for all outputs, or one for each
    root = module.observed_roots(context.likelihood.noise_variance.rsqrt().reshape(1, -1)).mT.contiguous()
    return PseudoOutputs(fill_missing(module.targets), root)
