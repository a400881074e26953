"""The last layer given the layers below it: a Gaussian law, which new data update exactly.

Given a draw of the layers below, with outputs h(x), the last layer f is Gaussian with a covariance C. A draw f of it becomes
a draw given new data y = f(x') + e, e ~ N(0, Sigma), by Matheron's rule:

    f(x) + C(x, x') (C(x', x') + Sigma)^-1 (y - f(x') - e)

    Linear:   f = h w,   C = h A^-1 h',   A = P + X' Lambda X
    GPLayer:  C = k(h, h) - A A' + A V[a] A',   A = K_hu R^-T

The cost is cubic in the number of new rows only. The draws of the layers below keep their equal weights, so the update is
exact for one layer, and for more layers it is exact given the layers below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.cholesky import factorise
from inducing.linalg.noise import seeded, standard_normal
from inducing.nn.context import DrawContext
from inducing.nn.draw import Chain, Function, FunctionSamples
from inducing.nn.gp.functions import Path
from inducing.nn.kernels import Kernel, Values
from inducing.nn.layers.gp import GPLayer
from inducing.nn.layers.linear import Affine, Linear, with_ones
from inducing.nn.likelihoods import HeteroscedasticGaussian, Likelihood
from inducing.nn.network import Network
from inducing.nn.posteriors.base import ValuePrior, WeightModule
from inducing.nn.posteriors.factorised import FactorisedWeights
from inducing.nn.posteriors.inducing import InducingWeights
from inducing.nn.posteriors.optimal import HeteroscedasticWeights, OptimalWeights, as_pseudo_likelihood
from inducing.nn.posteriors.prior_only import PriorWeights

Rows = Float[Tensor, "S *batch n F"]


class Covariance(ABC):
    """C(x, x') of the last layer of S draws, for G groups of outputs: one for all outputs, or one for each."""

    @abstractmethod
    def features(self, rows: Rows) -> tuple[Tensor, ...]:
        """Return what `between` needs to know about rows of inputs of the layer."""

    @abstractmethod
    def between(self, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Float[Tensor, "S *batch G n k"]:
        """Return C for all pairs of rows, from their features."""

    @abstractmethod
    def select(self, outputs: list[int]) -> Covariance:
        """Return the covariance of some of the outputs."""

    @abstractmethod
    def fold(self, last: Function, update: Update) -> Function:
        """Return the last layer with the correction C(x, x') c of its first outputs, as a function of the same kind."""


@dataclass(frozen=True, eq=False)
class LinearCovariance(Covariance):
    """C = h A^-1 h' = (h T^-T) (h T^-T)'.

    Arguments:
        root: T^-T, a root of the covariance of the weights.
        bias: Whether the layer has a bias.
    """

    root: Float[Tensor, "#S G F F"]
    bias: bool

    def features(self, rows: Rows) -> tuple[Tensor, ...]:
        inputs = with_ones(rows.double()) if self.bias else rows.double()
        root = self.root.reshape(len(self.root), *[1] * (rows.ndim - 3), *self.root.shape[1:])
        return (inputs[..., None, :, :] @ root,)

    def between(self, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Float[Tensor, "S *batch G n k"]:
        return left[0] @ right[0].mT

    def select(self, outputs: list[int]) -> LinearCovariance:
        return self if self.root.shape[1] == 1 else replace(self, root=self.root[:, outputs])

    def fold(self, last: Function, update: Update) -> Affine:
        assert isinstance(last, Affine)
        # h w + h A^-1 h(x')'c
        change = (self.root @ (update.features[0].mT @ update.coefficients))[..., 0].mT
        return replace(last, weights=last.weights + _pad(change, last.weights))


@dataclass(frozen=True, eq=False)
class ProcessCovariance(Covariance):
    """C = k(h, h) - A A' + A V[a] A' of a Gaussian process, with A = K_hu R^-T.

    Arguments:
        kernel: The covariance function of the prior.
        values: Its evaluated hyperparameters.
        inducing_inputs: The inputs u.
        inverse: R^-1.
        spread: A root of V[a].
    """

    kernel: Kernel
    values: Values
    inducing_inputs: Float[Tensor, "#S M D"]
    inverse: Float[Tensor, "#S M M"]
    spread: Float[Tensor, "#S G M M"]

    def features(self, rows: Rows) -> tuple[Tensor, ...]:
        rows = rows.double()
        flat = rows.flatten(1, -2)
        known = self.kernel.matrix(self.values, flat, self.inducing_inputs) @ self.inverse.mT
        spread = known[:, None] @ self.spread.double()
        shape = rows.shape[1:-1]
        return rows, known.unflatten(1, shape), spread.unflatten(2, shape).movedim(1, -3)

    def between(self, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Float[Tensor, "S *batch G n k"]:
        batch = torch.broadcast_shapes(left[0].shape[:-2], right[0].shape[:-2])
        one, other = (rows.expand(*batch, -1, -1).reshape(-1, *rows.shape[-2:]) for rows in (left[0], right[0]))
        prior = self.kernel.matrix(self.values, one, other).unflatten(0, batch)
        return (prior - left[1] @ right[1].mT)[..., None, :, :] + left[2] @ right[2].mT

    def select(self, outputs: list[int]) -> ProcessCovariance:
        return self if self.spread.shape[1] == 1 else replace(self, spread=self.spread[:, outputs])

    def fold(self, last: Function, update: Update) -> Path:
        assert isinstance(last, Path)
        rows, known, spread = update.features
        # K_hx' c - K_hu R^-T (A'c - V[a] A'c), with A at the new rows: a path with more inducing inputs
        coefficients = update.coefficients
        explained = known.mT[:, None] @ coefficients - self.spread @ (spread.mT @ coefficients)
        change = (self.inverse.mT[:, None] @ explained)[..., 0].mT
        inputs = self.inducing_inputs.expand(len(rows), -1, -1)
        old, new = last.correction - _pad(change, last.correction), _pad(coefficients[..., 0].mT, last.correction)
        return replace(last, inducing_inputs=torch.cat([inputs, rows], 1), correction=torch.cat([old, new], 1))


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
                "new data update the last layer, which must be a Linear or GPLayer at the end of the network. "
                "Fit the network to all data instead"
            )
        return self.covariance


class Update(NamedTuple):
    """The correction C(x, x') c of the draws by new data, c = (C(x', x') + Sigma)^-1 (y - f(x') - e).

    Arguments:
        features: Features of the new rows.
        coefficients: c, for each output.
    """

    features: tuple[Tensor, ...]
    coefficients: Float[Tensor, "S *batch O n 1"]

    def correct(self, covariance: Covariance, rows: Rows) -> Float[Tensor, "S *batch q O"]:
        """Return the correction at rows of inputs of the last layer, which may have more batch axes than the new data."""
        missing = (rows.ndim - 3) - (self.coefficients.ndim - 4)

        def align(part: Tensor) -> Tensor:
            return part.reshape(len(part), *[1] * missing, *part.shape[1:])

        cross = covariance.between(covariance.features(rows), tuple(map(align, self.features)))
        return (cross @ align(self.coefficients))[..., 0].mT


def draw_last_layer(
    network: Network, num_samples: int, seed: int = 0, likelihood: Likelihood | None = None
) -> LastLayerDraw:
    """Draw the functions of ``network.sample_functions(num_samples, seed, likelihood)``, and the law of the last layer."""
    context = DrawContext(num_samples, seeded(seed, "functions"), consistent=True, likelihood=likelihood)
    inducing = None if network.inducing_points is None else network.inducing_points[None]
    *parts, (name, last) = network.layers.named_parts("layers")
    with torch.no_grad():
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


def update(
    covariance: Covariance,
    rows: Rows,
    outputs: Float[Tensor, "S *batch n O"],
    targets: Float[Tensor, "*batch n O"],
    noise_variance: Float[Tensor, "..."],
    noise: Float[Tensor, "..."],
) -> Update:
    """Condition the draws on new data.

    Arguments:
        covariance: The covariance of the last layer.
        rows: The inputs h(x') of the last layer at the new rows.
        outputs: The draws f(x').
        targets: y. Missing targets (NaN) are left out.
        noise_variance: The diagonal of Sigma for each output, which broadcasts with the outputs.
        noise: Standard normal noise z, with e = sqrt(Sigma) z, which broadcasts with the outputs.
    """
    outputs = outputs.double()
    variance = noise_variance.double().expand(torch.broadcast_shapes(outputs.shape, noise_variance.shape))
    residual = targets.double() - outputs - variance.sqrt() * noise
    features = covariance.features(rows)
    matrix = covariance.between(features, features)
    missing = targets.isnan()
    if missing.any():
        # a missing target has c = 0
        observed = ~missing.mT
        matrix = matrix * (observed[..., :, None] & observed[..., None, :])
        variance, residual = torch.where(missing, 1.0, variance), torch.where(missing, 0.0, residual)
    matrix = matrix + torch.diag_embed(variance.mT)
    factor = torch.linalg.cholesky(matrix)
    return Update(features, torch.cholesky_solve(residual.mT[..., None], factor))


def sample_updated_functions(
    network: Network,
    likelihood: Likelihood,
    x: Float[Tensor, "n *in"],
    y: Float[Tensor, "n O"],
    num_samples: int,
    seed: int = 0,
) -> FunctionSamples:
    """Sample functions of a network given new data, as a frozen module of the same kind as without them."""
    draws = draw_last_layer(network, num_samples, seed, likelihood)
    known = draws.require_covariance()
    with torch.no_grad():
        rows = draws.below(x[None])
        rows = rows.expand(num_samples, *rows.shape[1:])
        outputs = draws.last(rows)
        mean = likelihood.mean(outputs)
        covariance = known.select(list(range(mean.shape[-1])))
        noise = standard_normal(tuple(mean.shape), mean, seeded(seed, "noise of new data"))
        found = update(covariance, rows, mean, y, noise_variance(likelihood, outputs), noise)
        function = Chain((draws.below, covariance.fold(draws.last, found)))
    return FunctionSamples(function, network.input_shape, network.dtype)


def noise_variance(likelihood: Likelihood, outputs: Tensor) -> Tensor:
    """Return the variance of the noise for each output of the mean. Noise that is not Gaussian counts as Gaussian."""
    if likelihood.support != "real":
        raise TypeError(
            f"an exact update needs Gaussian noise, but the likelihood is {type(likelihood).__name__}. "
            "Use Gaussian() or HeteroscedasticGaussian()"
        )
    return likelihood.variance(outputs)


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
    factor = factorise(precision.to(torch.float64).add_to(gram))[1]
    return affine, LinearCovariance(_invert(factor).mT, layer.bias)


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
    roots, _ = layer._factorise(path.values, inputs)
    mean = path.mean(inputs).expand(-1, inputs.shape[1], layer.out_features)
    # the noise of this call is not used
    again = replace(context, generator=seeded(0, "moments"))
    spread = layer.posterior(ValuePrior(roots.root, mean), again, True).spread
    assert spread is not None
    return ProcessCovariance(path.kernel, path.values, inputs, roots.inverse, spread.double())


def _pad(change: Float[Tensor, "S n m"], like: Float[Tensor, "S _ O"]) -> Float[Tensor, "S n O"]:
    """Append zeros for outputs that are not means, in the dtype of the function."""
    return torch.nn.functional.pad(change, (0, like.shape[-1] - change.shape[-1])).to(like.dtype)


def _invert(factor: Float[Tensor, "*S F F"]) -> Float[Tensor, "*S F F"]:
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
