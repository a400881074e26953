"""Draws of a network, with the Gaussian law of the last layer given the layers below it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.autocasting import without_autocasting
from inducing.linalg.noise import seeded
from inducing.linalg.roots import find_roots
from inducing.nn.context import DrawContext
from inducing.nn.draw import Chain, Function
from inducing.nn.gp.functions import Path
from inducing.nn.last_layer.covariance import Covariance, LinearCovariance, ProcessCovariance
from inducing.nn.layers.gp import GPLayer
from inducing.nn.layers.linear import Affine, Linear, with_ones
from inducing.nn.likelihoods import HeteroscedasticGaussian, Likelihood
from inducing.nn.network import Network
from inducing.nn.posteriors.base import ValuePrior, WeightModule
from inducing.nn.posteriors.factorised import FactorisedWeights
from inducing.nn.posteriors.inducing import InducingWeights
from inducing.nn.posteriors.optimal import HeteroscedasticWeights, OptimalWeights, as_pseudo_likelihood
from inducing.nn.posteriors.prior_only import PriorWeights


@dataclass(frozen=True, eq=False)
class LastLayerDraw:
    """Drawn functions of a network, with the law of the last layer given the layers below.

    Arguments:
        below: The layers below the last.
        last: The last layer.
        covariance: The covariance of the last layer, or None if it is not known: for convolutions, residual blocks and
            plain modules at the end.
    """

    below: Function
    last: Function
    covariance: Covariance | None

    def require_covariance(self) -> Covariance:
        """Return the covariance. Raise an error if it is not known."""
        if self.covariance is None:
            raise ValueError(
                "new data update the last layer, which must be a Linear or GPLayer at the end of the network, with a "
                "posterior that is not a point estimate. Update by gradient steps instead, e.g. num_steps=500, or fit again"
            )
        return self.covariance


def draw_last_layer(
    network: Network, num_samples: int, seed: int = 0, likelihood: Likelihood | None = None
) -> LastLayerDraw:
    """Draw the functions of ``network.sample_functions(num_samples, seed, likelihood)``, and the law of the last layer."""
    context = DrawContext(num_samples, seeded(seed, "functions"), consistent=True, likelihood=likelihood)
    inducing = None if network.inducing_points is None else network.inducing_points[None]
    *parts, (name, last) = network.layers.named_parts("layers")
    with torch.no_grad(), without_autocasting(network.device):
        steps: list[Function] = []
        for part_name, part in parts:
            function, inducing, _ = part.sample(part_name, inducing, context)
            steps.append(function)
        below = Chain(tuple(steps))
        if isinstance(last, Linear):
            return LastLayerDraw(below, *_draw_linear(last, inducing, context))
        function = last.sample(name, inducing, context).function
        covariance = None
        if isinstance(last, GPLayer) and isinstance(function, Path) and last.integrates_values:
            covariance = _process_covariance(last, function, context)
        return LastLayerDraw(below, function, covariance)


def _draw_linear(
    layer: Linear, inducing: Float[Tensor, "#S M in"] | None, context: DrawContext
) -> tuple[Affine, LinearCovariance | None]:
    # the same steps as in `Linear.draw`, with the precision of the prior at hand
    precision, _ = layer.prior(context.num_samples, context.generator)
    rows = with_ones(inducing) if layer.bias and inducing is not None else inducing
    weights, _ = layer.posterior(rows, precision, context)
    affine = Affine(weights, layer.bias)
    if isinstance(layer.posterior, FactorisedWeights):
        deviations = layer.posterior.moments()[1].double().sqrt()
        return affine, LinearCovariance(torch.diag_embed(deviations.mT)[None], layer.bias)
    gram = _gram(layer.posterior, rows, weights, context)
    if gram is None:
        return affine, None
    # A = P + X' Lambda X = TT'
    inverse = find_roots(precision.to(torch.float64).add_to(gram)).inverse
    return affine, LinearCovariance(inverse.mT, layer.bias)


def _gram(
    posterior: WeightModule, rows: Float[Tensor, "#S M F"] | None, weights: Float[Tensor, "S F O"], context: DrawContext
) -> Float[Tensor, "#S G F F"] | None:
    """Return X' Lambda X of a posterior, or None if it is of another kind."""
    features, outputs = weights.shape[1:]
    if isinstance(posterior, PriorWeights):
        return weights.new_zeros(1, 1, features, features, dtype=torch.float64)
    if isinstance(posterior, InducingWeights):
        rows = rows if posterior.inducing_inputs is None else posterior.inducing_inputs[None]
    if rows is None:
        return None
    rows = rows.double()
    if isinstance(posterior, InducingWeights):
        return posterior.pseudo_data().to(torch.float64).statistics(rows).gram
    if isinstance(posterior, OptimalWeights):
        return as_pseudo_likelihood(posterior, context).to(torch.float64).statistics(rows).gram
    if isinstance(posterior, HeteroscedasticWeights):
        assert isinstance(context.likelihood, HeteroscedasticGaussian)
        # only the weights of the means are updated: Lambda = diag 1/v(g) for each target
        of_noise = weights[..., outputs // 2 :].double()
        log_variance = context.likelihood.log_noise_variance(rows @ of_noise)
        root = posterior.observed_roots((-log_variance / 2).exp())
        whitened = root.mT[..., None] * rows[:, None]
        return whitened.mT @ whitened
    return None


def _process_covariance(layer: GPLayer, path: Path, context: DrawContext) -> ProcessCovariance:
    inputs = path.inducing_inputs
    roots, nugget = layer._factorise(path.values, inputs)
    mean = path.mean(inputs).expand(-1, inputs.shape[1], layer.out_features)
    # the noise of this call is not used
    again = replace(context, generator=seeded(0, "moments"))
    spread = layer.posterior(ValuePrior(roots.root, mean), again, True).spread
    assert spread is not None
    return ProcessCovariance(path.kernel, path.values, inputs, roots.inverse, spread.double(), nugget)
