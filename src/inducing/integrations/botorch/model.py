"""A fitted network and its likelihood as a BoTorch model."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.model import FantasizeMixin, Model
from botorch.posteriors.posterior import Posterior
from jaxtyping import Float
from torch import Tensor, nn

from inducing.checks import check_kind, check_whole
from inducing.integrations.botorch.observations import Observations
from inducing.integrations.botorch.posterior import DrawsPosterior
from inducing.linalg.noise import seeded, standard_normal
from inducing.nn.last_layer import Covariance, LastLayerDraw, Update, draw_last_layer, noise_variance, update
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network

if TYPE_CHECKING:
    from inducing.estimators.base import NetworkEstimator

NUM_SAMPLES = 64


class InducingModel(Model, FantasizeMixin):
    """A BoTorch model around a fitted network and its likelihood.

    Arguments:
        network: A fitted network.
        likelihood: Its likelihood, for real targets.
        num_samples: Number S of functions in the posterior.
        seed: Seed of the functions.
        input_transform: Applied to X, e.g. BoTorch's `Normalize`, if the network was fitted to transformed inputs.
        outcome_transform: Undone on the values, e.g. BoTorch's `Standardize`, if the network was fitted to transformed
            targets.

    Example:
        >>> import inducing, torch
        >>> from inducing.integrations.botorch import InducingModel
        >>> network = inducing.models.mlp(2, 1, [20], num_inducing=10)
        >>> model = InducingModel(network.double(), inducing.Gaussian().double())
        >>> model.posterior(torch.rand(5, 3, 2).double()).mean.shape
        torch.Size([5, 3, 1])
    """

    input_transform: nn.Module
    outcome_transform: Any
    input_mean: Tensor
    input_std: Tensor
    location: Tensor
    scale: Tensor

    def __init__(
        self,
        network: Network,
        likelihood: Likelihood,
        num_samples: int = NUM_SAMPLES,
        seed: int = 0,
        input_transform: nn.Module | None = None,
        outcome_transform: nn.Module | None = None,
    ) -> None:
        super().__init__()
        check_kind(
            "network", network, Network, "a Network. For an estimator, use InducingModel.from_estimator(estimator)"
        )
        check_kind("likelihood", likelihood, Likelihood, "a likelihood, e.g. inducing.Gaussian()")
        if likelihood.support != "real" or len(network.input_shape) != 1:
            raise ValueError(
                "Bayesian optimisation needs real targets and rows of numbers as inputs, got a "
                f"{type(likelihood).__name__} likelihood and rows of shape {network.input_shape}"
            )
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.likelihood = copy.deepcopy(likelihood).requires_grad_(False)
        self.num_samples, self.seed = check_whole("num_samples", num_samples), seed
        if input_transform is not None:
            self.input_transform = input_transform
        if outcome_transform is not None:
            self.outcome_transform = outcome_transform
        row = torch.zeros(1, 1, *network.output_shape, dtype=network.dtype, device=network.device)
        targets = likelihood.mean(row).shape[-1]
        for size, mean, std in ((network.input_shape[0], "input_mean", "input_std"), (targets, "location", "scale")):
            self.register_buffer(mean, row.new_zeros(size))
            self.register_buffer(std, row.new_ones(size))
        self._outputs = list(range(targets))
        self._observations: Observations | None = None
        self._draws: LastLayerDraw
        self._update: Update | None
        self._draw()
        self.eval()

    @classmethod
    def from_estimator(
        cls,
        estimator: NetworkEstimator,
        num_samples: int = NUM_SAMPLES,
        seed: int = 0,
        input_transform: nn.Module | None = None,
        outcome_transform: nn.Module | None = None,
    ) -> InducingModel:
        """Return the model of a fitted regressor. X and Y are in the units of its data."""
        from sklearn.utils.validation import check_is_fitted

        from inducing.estimators.base import NetworkEstimator
        from inducing.estimators.targets import NumericTargets

        check_kind(
            "estimator", estimator, NetworkEstimator, "a regressor. For an AutoRegressor, use one of its members_"
        )
        check_is_fitted(estimator, "network_")
        if estimator._further_inputs is not None:
            name, advice = type(estimator).__name__, "Use BNNRegressor or DeepGPRegressor"
            raise ValueError(f"the trees of a {name} have no gradients, which Bayesian optimisation needs. {advice}")
        targets = estimator.targets_
        if not isinstance(targets, NumericTargets) or any(targets.is_log):
            advice = "Fit a regressor with target_transform='none'; botorch.models.transforms.Log makes Y logarithmic"
            raise ValueError(f"only regressors with targets on their own scale become a BoTorch model. {advice}.")
        model = cls(estimator.network_, estimator.likelihood_, num_samples, seed, input_transform, outcome_transform)
        for name, value in zip(("input_mean", "input_std"), estimator.inputs_, strict=True):
            model.get_buffer(name).copy_(value)
        for name, moment in zip(("location", "scale"), targets.scale, strict=True):
            model.get_buffer(name).copy_(torch.as_tensor(moment))
        if (updated := vars(estimator).get("updated_")) is not None:
            x, y = updated.x * model.input_std + model.input_mean, updated.y
            noise = standard_normal((num_samples, *y.shape), y, seeded(seed, "noise of new data"))
            model._observations = Observations(x, y, torch.full_like(y, torch.nan), noise)
            model._condition()
        return model

    @property
    def num_outputs(self) -> int:
        """The number of targets."""
        return len(self._outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the observations that the model was conditioned on; empty without any."""
        return torch.Size() if self._observations is None else self._observations.y.shape[:-2]

    def forward(self, X: Float[Tensor, "*b q d"]) -> Float[Tensor, "*b S q m"]:
        """Return the values of all functions, without observation noise, in the units of the targets."""
        return self._values(self._points(X)).movedim(0, -3).to(X.dtype)

    def posterior(  # type: ignore[override]
        self,
        X: Float[Tensor, "*b q d"],
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> Posterior:
        """Return the joint posterior of the q points of each batch.

        Arguments:
            X: The points.
            output_indices: Targets to return. Default: all.
            observation_noise: Whether to add the noise of the likelihood; or a tensor with the variances of the noise,
                in the units of the network's targets if there is an outcome transform, as in BoTorch.
            posterior_transform: A BoTorch posterior transform.
        """
        self.eval()
        points = self._points(X)
        values = self._values(points)
        noisy = None if observation_noise is False else values + self._noise(points, observation_noise)
        found = [self._untransform(each, X) for each in (values, noisy) if each is not None]
        if hasattr(self, "outcome_transform") and not self.outcome_transform._is_linear:
            # the mean of a transformed value with noise is not that without
            found = found[-1:]
        if output_indices is not None:
            found = [each[..., output_indices] for each in found]
        if isinstance(posterior_transform, ScalarizedPosteriorTransform):
            # BoTorch's own code is for Gaussian posteriors
            weights = posterior_transform.get_buffer("weights").to(X)
            return DrawsPosterior(*((each @ weights + posterior_transform.offset)[..., None] for each in found))
        posterior = DrawsPosterior(*found)
        return posterior if posterior_transform is None else posterior_transform(posterior=posterior, X=X)

    def subset_output(self, idcs: list[int]) -> InducingModel:
        """Return the model of some of the targets."""
        model = self._copy()
        if hasattr(self, "outcome_transform"):
            model.outcome_transform = self.outcome_transform.subset_output(idcs=idcs)
        model._outputs = [self._outputs[index] for index in idcs]
        if (old := self._observations) is not None:
            parts = (part[..., idcs] for part in (old.y, old.variance, old.noise))
            model._observations = Observations(old.x, *parts)
            model._condition()
        return model

    def condition_on_observations(
        self, X: Float[Tensor, "*b n d"], Y: Float[Tensor, "*f n m"], noise: Tensor | None = None, **_: Any
    ) -> InducingModel:
        """Return the model given new observations.

        The last layer of each function is updated exactly given the layers below, which are not reweighted. Noise that is
        not Gaussian counts as Gaussian with the same variance.

        Arguments:
            X: The points, with the batch shape of the model or one that broadcasts with it.
            Y: The observations, which may have more batch axes in front, such as fantasies.
            noise: Variances of their noise. Default: those of the likelihood.
        """
        if self._draws.covariance is None:
            raise ValueError(
                "new observations update the last layer, which must be a Linear or GPLayer at the end of the network"
            )
        if Y.shape[-1] != self.num_outputs or X.shape[-2] != Y.shape[-2]:
            raise ValueError(
                f"Y must have shape (..., {X.shape[-2]}, {self.num_outputs}) for X of shape {tuple(X.shape)}, "
                f"got {tuple(Y.shape)}"
            )
        self.eval()
        x = self.transform_inputs(X).to(self.input_mean)
        if hasattr(self, "outcome_transform"):
            Y, noise = self.outcome_transform(Y, noise)
        scale = self.scale[self._outputs]
        y = (Y.to(scale) - self.location[self._outputs]) / scale
        variance = torch.full_like(y, torch.nan) if noise is None else (noise.to(scale) / scale.square()).expand_as(y)
        batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        x, y, variance = (each.expand(*batch, -1, -1) for each in (x, y, variance))
        old = self._observations
        count = 0 if old is None else old.noise.shape[1]
        generator = seeded(self.seed, f"noise of observations from {count}")
        new = Observations(x, y, variance, standard_normal((self.num_samples, *y.shape[-2:]), y, generator))
        model = self._copy()
        model._observations = new if old is None else old.join(new)
        model._condition()
        return model

    def _condition(self) -> None:
        """Compute the update of the last layer by all observations."""
        observed = self._observations
        assert observed is not None
        rows, outputs = self._outputs_at(observed.x[None])
        given = observed.variance.to(outputs)
        variance = torch.where(given.isnan(), self._noise_variance(outputs), given)
        noise = observed.noise.reshape(len(outputs), *[1] * (outputs.ndim - 3), *observed.noise.shape[1:])
        self._update = update(self._covariance, rows, self._means(outputs), observed.y, variance, noise.to(outputs))

    @property
    def _covariance(self) -> Covariance:
        """The covariance of the means of the targets."""
        assert self._draws.covariance is not None
        return self._draws.covariance.select(self._outputs)

    def _set_transformed_inputs(self) -> None:
        """Do nothing: the model holds no training inputs that an input transform would change."""

    def _draw(self) -> None:
        self._draws = draw_last_layer(self.network, self.num_samples, self.seed, self.likelihood)
        self._update = None
        if self._observations is not None:
            self._condition()

    def _apply(self, fn: Any, recurse: bool = True) -> InducingModel:
        # the draws follow from the seed, also in another dtype or on another device
        super()._apply(fn, recurse)
        self._draw()
        return self

    def _copy(self) -> InducingModel:
        """A copy that shares the network and its draws."""
        model = copy.copy(self)
        model._modules, model._buffers = dict(self._modules), dict(self._buffers)
        return model

    def _points(self, X: Float[Tensor, "*b q d"]) -> Float[Tensor, "1 *b q d"]:
        """Return the transformed points, with at least the batch shape of the observations."""
        points = self.transform_inputs(X)
        if points.ndim < 2 or points.shape[-1] != (size := len(self.input_mean)):
            raise ValueError(f"X must have shape (..., q, {size}): points with {size} inputs, got {tuple(X.shape)}")
        return points.expand(*torch.broadcast_shapes(points.shape[:-2], self.batch_shape), -1, -1)[None]

    def _outputs_at(self, x: Float[Tensor, "#S *b n d"]) -> tuple[Tensor, Tensor]:
        """Return the inputs and the outputs of the last layer, (S, *b, n, ...)."""
        shape = x.shape[1:-1]
        standardised = (x.to(self.input_mean) - self.input_mean) / self.input_std
        rows = self._draws.below(standardised.flatten(1, -2))
        outputs = self._draws.last(rows).unflatten(1, shape)
        return rows.unflatten(1, shape).expand(len(outputs), *[-1] * (len(shape) + 1)), outputs

    def _means(self, outputs: Float[Tensor, "S *b n O"]) -> Float[Tensor, "S *b n m"]:
        shape = outputs.shape[1:-1]
        return self.likelihood.mean(outputs.flatten(1, -2)).unflatten(1, shape)[..., self._outputs]

    def _noise_variance(self, outputs: Float[Tensor, "S *b n O"]) -> Float[Tensor, "S *b n m"]:
        shape = outputs.shape[1:-1]
        return noise_variance(self.likelihood, outputs.flatten(1, -2)).unflatten(1, shape)[..., self._outputs]

    def _values(self, x: Float[Tensor, "#S *b q d"]) -> Float[Tensor, "S *b q m"]:
        """Return the values of all functions in the units of the targets."""
        rows, outputs = self._outputs_at(x)
        values = self._means(outputs)
        if self._update is not None:
            values = values + self._update.correct(self._covariance, rows).to(values)
        return self.location[self._outputs] + self.scale[self._outputs] * values

    def _noise(self, points: Float[Tensor, "1 *b q d"], given: bool | Tensor) -> Float[Tensor, "S *b q m"]:
        """Return observation noise: one draw for each function and point, the same in all batches.

        It is scaled to mean 0 and variance 1 over the functions, so that the moments of the posterior are exact.
        """
        if isinstance(given, Tensor):
            deviation = given.to(self.scale).sqrt()
        else:
            deviation = self.scale[self._outputs] * self._noise_variance(self._outputs_at(points)[1]).sqrt()
        shape = (self.num_samples, *[1] * (points.ndim - 3), points.shape[-2], self.num_outputs)
        noise = standard_normal(shape, self.scale, seeded(self.seed, "observation noise"))
        noise = noise - noise.mean(0)
        return deviation * noise / noise.square().mean(0).sqrt().clamp_min(torch.finfo(noise.dtype).tiny)

    def _untransform(self, values: Float[Tensor, "S *b q m"], X: Tensor) -> Float[Tensor, "*b S q m"]:
        values = values.movedim(0, -3).to(X.dtype)
        if hasattr(self, "outcome_transform"):
            values, _ = self.outcome_transform.untransform(values)
        return values
