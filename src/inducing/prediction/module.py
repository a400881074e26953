"""Whole predictions as a plain module of the rows, for `inducing.exporting`: scaling, functions, likelihood, quantiles.

The quantiles of `Predictive` are roots found by a loop that ends when all are accurate, and use special functions that other
programs do not have. Here they are found by a fixed number of divisions of an interval, with the distribution function of
the noise from a table. For y = f + r v, with noise v of a fixed distribution G,

    P(Y <= y | x) = 1/S sum_s G((y - f_s(x)) / r_s(x))

The draws of several models form one mixture, in which each draw has the G of its model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.nn.draw import FunctionSamples
from inducing.nn.likelihoods import Categorical, Gaussian, Likelihood, StudentT
from inducing.nn.likelihoods.heteroscedastic import Heteroscedastic
from inducing.prediction.log_scale import LogScale

# y = f + r v, with a scale r that may depend on the outputs
WITH_QUANTILES = (Gaussian, StudentT, Heteroscedastic)
# An interval is divided into 32 parts 6 times, to 1e-9 of its length. Halvings would need five times as many steps, and each
# step is written out in the file.
PARTS, DIVISIONS = 32, 6
# knots of the table at v = s sinh(u), u from -20 to 20, where s is the standard deviation of v
REACH, KNOTS = 20.0, 8001


class ModelModule(nn.Module):
    """The draws of one model: rows (N, D) to their outputs, and these to the moments of targets on their original scale.

    Arguments:
        inputs: Mean and standard deviation of the rows, by which they are standardised.
        functions: The drawn functions of the standardised rows.
        likelihood: The likelihood.
        location: Mean of the targets.
        scale: Standard deviation of the targets.
        further_inputs: Function of the rows whose values are further inputs, if there are any.
    """

    input_mean: Tensor
    input_std: Tensor
    location: Tensor
    scale: Tensor

    def __init__(
        self,
        inputs: tuple[Float[Tensor, " D"], Float[Tensor, " D"]],
        functions: FunctionSamples,
        likelihood: Likelihood,
        location: Tensor | float,
        scale: Tensor | float,
        further_inputs: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.functions, self.likelihood, self.further_inputs = functions, likelihood, further_inputs
        self.register_buffer("input_mean", inputs[0])
        self.register_buffer("input_std", inputs[1])
        self.register_buffer("location", torch.as_tensor(location, dtype=torch.float64))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float64))

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "S N outputs"]:
        if self.further_inputs is not None:
            x = torch.cat([x, self.further_inputs(x)], 1)
        return self.functions((x - self.input_mean) / self.input_std)

    def mean(self, outputs: Float[Tensor, "S N outputs"]) -> Float[Tensor, "S N O"]:
        """E[y | f_s(x)] of each draw, or its class probabilities."""
        return self.location + self.scale * self.likelihood.mean(outputs)

    def variance(self, outputs: Float[Tensor, "S N outputs"]) -> Float[Tensor, "S N O"]:
        """V[y | f_s(x)] of each draw."""
        return self.scale**2 * self.likelihood.variance(outputs)


class PredictionModule(nn.Module):
    """Rows (N, D) to the statistics of their predictions, in the order of `names`. All draws have the same weight.

    Arguments:
        models: The draws of each model.
        quantiles: Levels of the quantiles, for likelihoods in `WITH_QUANTILES`.
        squeeze: Whether the single target has no axis of its own.
    """

    def __init__(self, models: Sequence[ModelModule], quantiles: Sequence[float] = (), squeeze: bool = False) -> None:
        super().__init__()
        self._models, self.squeeze = nn.ModuleList(models), squeeze
        self.has_classes = isinstance(models[0].likelihood, Categorical)
        self.mixture = MixtureQuantiles(models, quantiles) if len(quantiles) else None

    @property
    def models(self) -> list[ModelModule]:
        """The draws of each model."""
        return cast(list[ModelModule], list(self._models))

    @property
    def names(self) -> list[str]:
        """The names of the outputs."""
        if self.has_classes:
            return ["probabilities"]
        moments = ["mean", "std", "aleatoric_std", "epistemic_std"]
        return [*moments, "quantiles"] if self.mixture is not None else moments

    def forward(self, x: Float[Tensor, "N D"]) -> tuple[Tensor, ...]:
        outputs = [model(x) for model in self.models]
        pairs = list(zip(self.models, outputs, strict=True))
        means = torch.cat([model.mean(own) for model, own in pairs])
        if self.has_classes:
            return (means.mean(0),)
        aleatoric = torch.cat([model.variance(own) for model, own in pairs]).mean(0)
        epistemic = means.var(0, correction=0)
        found = [means.mean(0), (aleatoric + epistemic).sqrt(), aleatoric.sqrt(), epistemic.sqrt()]
        if self.mixture is not None:
            found.append(self.mixture(outputs))
        return tuple(each[..., 0] if self.squeeze else each for each in found)


class MixtureQuantiles(nn.Module):
    """Quantiles of a mixture, from the outputs of each model, (S, N, outputs), to (Q, N, O).

    Targets whose logarithm was modelled are on a log scale until the end. This must be true of all models or of none.

    Arguments:
        models: The models, with likelihoods of the form y = f + r v.
        levels: The levels of the quantiles.
    """

    levels: Tensor
    inner_points: Tensor

    def __init__(self, models: Sequence[ModelModule], levels: Sequence[float]) -> None:
        super().__init__()
        levels = [float(level) for level in levels]
        if not all(0 < level < 1 for level in levels):
            raise ValueError(f"quantiles must be between 0 and 1, got {levels}")
        noises = [Noise(model, levels) for model in models]
        self._noises, self.has_log = nn.ModuleList(noises), noises[0].has_log
        assert all(torch.equal(noises[0].is_log, noise.is_log) for noise in noises)
        self.register_buffer("levels", torch.tensor(levels, dtype=torch.float64)[:, None, None])
        inner = torch.arange(1, PARTS, dtype=torch.float64)
        self.register_buffer("inner_points", inner[:, None, None, None])

    def forward(self, outputs: list[Tensor]) -> Float[Tensor, "Q N O"]:
        noises = cast(list[Noise], list(self._noises))
        triples = [(noise, *noise.scales(own)) for noise, own in zip(noises, outputs, strict=True)]
        # the quantile of a mixture is between the smallest and the largest quantile of its components
        of_components = torch.cat([mean + ratio * noise.starts for noise, mean, ratio in triples], 1)
        low, high = of_components.amin(1), of_components.amax(1)
        for _ in range(DIVISIONS):
            width = (high - low) / PARTS
            inner = (low + width * self.inner_points)[:, :, None]
            below = torch.cat([noise((inner - mean) / ratio) for noise, mean, ratio in triples], 2)
            # the number of inner points below the quantile
            low = low + width * (below.mean(2) < self.levels).sum(0)
            high = low + width
        found = (low + high) / 2
        return torch.where(noises[0].is_log, found.exp(), found) if self.has_log else found


class Noise(nn.Module):
    """The distribution function G of the noise v of one model, y = f + r v, by a table: (*, O) -> (*, O).

    Arguments:
        model: The model. The distribution of its likelihood at outputs of zero is that of v.
        levels: Levels of quantiles of v, which are ``starts``.
    """

    coefficients: Tensor
    first_piece: Tensor
    spread: Tensor
    unit_variance: Tensor
    starts: Tensor
    location: Tensor
    scale: Tensor
    is_log: Tensor

    def __init__(self, model: ModelModule, levels: Sequence[float]) -> None:
        super().__init__()
        # imported here, since scipy is slow to import
        from scipy.interpolate import CubicSpline

        likelihood, location, scale, functions = model.likelihood, model.location, model.scale, model.functions
        with torch.no_grad():
            row = functions.function(torch.zeros(1, 1, *functions.input_shape, dtype=functions.dtype))[:1]
            is_log = torch.zeros(likelihood.mean(row).shape[-1], dtype=torch.bool)
            if isinstance(likelihood, LogScale):
                location, scale, is_log = likelihood.location, likelihood.scale, likelihood.is_log
                likelihood = likelihood.likelihood
            variance = likelihood.variance(torch.zeros_like(row))
            spread = variance[0, 0].sqrt()
            knots = torch.linspace(-REACH, REACH, KNOTS, dtype=torch.float64)
            # G at each knot, for each target
            outputs = torch.zeros_like(row).expand(1, KNOTS, *row.shape[2:])
            probability = likelihood.log_cdf(outputs, spread * knots.sinh()[:, None])[0].exp()
            starts = torch.stack([likelihood.icdf(torch.zeros_like(row), level)[0] for level in levels])
        self.likelihood, self.has_log = likelihood, bool(is_log.any())
        spline = CubicSpline(knots.numpy(), probability.numpy())
        # (4, pieces, targets) to (4, targets * pieces): all pieces of one target after the other
        coefficients = torch.as_tensor(np.ascontiguousarray(spline.c)).mT.flatten(1)
        buffers = {"location": location, "scale": scale, "is_log": is_log, "spread": spread, "unit_variance": variance}
        buffers |= {"coefficients": coefficients, "first_piece": torch.arange(len(spread)) * (KNOTS - 1)}
        for name, tensor in {**buffers, "starts": starts[:, None]}.items():
            self.register_buffer(name, tensor)

    def scales(self, outputs: Float[Tensor, "S N outputs"]) -> tuple[Float[Tensor, "S N O"], Float[Tensor, "S N O"]]:
        """The mean f and the scale r of y, or of log y."""
        ratio = (self.likelihood.variance(outputs) / self.unit_variance).sqrt()
        return self.location + self.scale * self.likelihood.mean(outputs), self.scale * ratio

    def forward(self, v: Float[Tensor, "*rows O"]) -> Float[Tensor, "*rows O"]:
        """Return G(v), by a cubic polynomial in asinh(v / s) on each piece of the table."""
        step = 2 * REACH / (KNOTS - 1)
        place = torch.asinh(v / self.spread).clamp(-REACH, REACH * (1 - 1e-12)) + REACH
        piece = (place / step).floor()
        rest = place - step * piece
        # NaN has no place in the table, and stays NaN by the rest
        row = piece.nan_to_num(0.0).long() + self.first_piece
        third, second, first, value = (each[row] for each in self.coefficients.unbind())
        return value + rest * (first + rest * (second + rest * third))
