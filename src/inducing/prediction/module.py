"""Whole predictions as a plain module of the rows, for `inducing.exporting`: scaling, functions, likelihood, quantiles.

The quantiles of `Predictive` are roots found by a loop that ends when all are accurate, and use special functions that other
programs do not have. Here they are found by a fixed number of divisions of an interval, with the distribution function of
the noise from a table. For y = f + r v, with noise v of a fixed distribution G,

    P(Y <= y | x) = 1/S sum_s G((y - f_s(x)) / r_s(x))
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.nn.draw import FunctionSamples
from inducing.nn.likelihoods import Categorical, Gaussian, Likelihood, StudentT
from inducing.nn.likelihoods.heteroscedastic import Heteroscedastic
from inducing.prediction.log_scale import LogScale
from inducing.prediction.predictive import Predictive

# y = f + r v, with a scale r that may depend on the outputs
WITH_QUANTILES = (Gaussian, StudentT, Heteroscedastic)
# An interval is divided into 32 parts 6 times, to 1e-9 of its length. Halvings would need five times as many steps, and each
# step is written out in the file.
PARTS, DIVISIONS = 32, 6
# knots of the table at v = s sinh(u), u from -20 to 20, where s is the standard deviation of v
REACH, KNOTS = 20.0, 8001


class PredictionModule(nn.Module):
    """Rows (N, D) to the statistics of their predictions, in the order of `names`.

    Arguments:
        inputs: Mean and standard deviation of the rows, by which they are standardised.
        functions: The drawn functions of the standardised rows.
        likelihood: The likelihood.
        location: Mean of the targets.
        scale: Standard deviation of the targets.
        quantiles: Levels of the quantiles, for likelihoods in `WITH_QUANTILES`.
        squeeze: Whether the single target has no axis of its own.
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
        quantiles: Sequence[float] = (),
        squeeze: bool = False,
        further_inputs: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.functions, self.likelihood, self.squeeze = functions, likelihood, squeeze
        self.further_inputs = further_inputs
        self.register_buffer("input_mean", inputs[0])
        self.register_buffer("input_std", inputs[1])
        self.register_buffer("location", torch.as_tensor(location, dtype=torch.float64))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float64))
        noise = likelihood.likelihood if isinstance(likelihood, LogScale) else likelihood
        self.mixture = MixtureQuantiles(noise, functions, quantiles) if len(quantiles) else None

    @property
    def names(self) -> list[str]:
        """The names of the outputs."""
        if isinstance(self.likelihood, Categorical):
            return ["probabilities"]
        moments = ["mean", "std", "aleatoric_std", "epistemic_std"]
        return [*moments, "quantiles"] if self.mixture is not None else moments

    def forward(self, x: Float[Tensor, "N D"]) -> tuple[Tensor, ...]:
        if self.further_inputs is not None:
            x = torch.cat([x, self.further_inputs(x)], 1)
        outputs = self.functions((x - self.input_mean) / self.input_std)
        if isinstance(self.likelihood, Categorical):
            return (self.likelihood.mean(outputs).mean(0),)
        predictive = Predictive(outputs, self.likelihood, self.location, self.scale)
        aleatoric, epistemic = predictive.aleatoric, predictive.epistemic
        found = [predictive.mean, (aleatoric + epistemic).sqrt(), aleatoric.sqrt(), epistemic.sqrt()]
        if self.mixture is not None:
            quantiles, likelihood = self.mixture(outputs), self.likelihood
            if isinstance(likelihood, LogScale):
                found.append(likelihood.restore(quantiles))
            else:
                found.append(self.location + self.scale * quantiles)
        return tuple(each[..., 0] if self.squeeze else each for each in found)


class MixtureQuantiles(nn.Module):
    """Quantiles of a mixture of likelihoods of the form y = f + r v, (S, N, outputs) -> (Q, N, O).

    Arguments:
        likelihood: The likelihood. Its distribution at outputs of zero is that of v.
        functions: The functions, for the number of their outputs.
        levels: The levels of the quantiles.
    """

    coefficients: Tensor
    first_piece: Tensor
    spread: Tensor
    variance: Tensor
    starts: Tensor
    levels: Tensor
    inner_points: Tensor

    def __init__(self, likelihood: Likelihood, functions: FunctionSamples, levels: Sequence[float]) -> None:
        super().__init__()
        # imported here, since scipy is slow to import
        from scipy.interpolate import CubicSpline

        self.likelihood = likelihood
        levels = [float(level) for level in levels]
        if not all(0 < level < 1 for level in levels):
            raise ValueError(f"quantiles must be between 0 and 1, got {levels}")
        with torch.no_grad():
            row = functions.function(torch.zeros(1, 1, *functions.input_shape, dtype=functions.dtype))[:1]
            variance = likelihood.variance(torch.zeros_like(row))
            spread = variance[0, 0].sqrt()
            knots = torch.linspace(-REACH, REACH, KNOTS, dtype=torch.float64)
            # G at each knot, for each target
            outputs = torch.zeros_like(row).expand(1, KNOTS, *row.shape[2:])
            probability = likelihood.log_cdf(outputs, spread * knots.sinh()[:, None])[0].exp()
            starts = torch.stack([likelihood.icdf(torch.zeros_like(row), level)[0] for level in levels])
        spline = CubicSpline(knots.numpy(), probability.numpy())
        # (4, pieces, targets) to (4, targets * pieces): all pieces of one target after the other
        coefficients = torch.as_tensor(np.ascontiguousarray(spline.c)).mT.flatten(1)
        self.register_buffer("coefficients", coefficients)
        self.register_buffer("first_piece", torch.arange(len(spread)) * (KNOTS - 1))
        self.register_buffer("spread", spread)
        self.register_buffer("variance", variance)
        self.register_buffer("starts", starts[:, None])
        self.register_buffer("levels", torch.tensor(levels, dtype=torch.float64)[:, None, None])
        inner = torch.arange(1, PARTS, dtype=torch.float64)
        self.register_buffer("inner_points", inner[:, None, None, None])

    def forward(self, outputs: Float[Tensor, "S N outputs"]) -> Float[Tensor, "Q N O"]:
        mean = self.likelihood.mean(outputs)
        ratio = (self.likelihood.variance(outputs) / self.variance).sqrt()
        # the quantile of a mixture is between the smallest and the largest quantile of its components
        of_components = mean + ratio * self.starts
        low, high = of_components.amin(1), of_components.amax(1)
        for _ in range(DIVISIONS):
            width = (high - low) / PARTS
            inner = low + width * self.inner_points
            reached = self.distribution((inner[:, :, None] - mean) / ratio).mean(2) < self.levels
            # the number of inner points below the quantile
            low = low + width * reached.sum(0)
            high = low + width
        return (low + high) / 2

    def distribution(self, v: Float[Tensor, "*rows O"]) -> Float[Tensor, "*rows O"]:
        """Return G(v) of the noise, by a cubic polynomial in asinh(v / s) on each piece of the table."""
        step = 2 * REACH / (KNOTS - 1)
        place = torch.asinh(v / self.spread).clamp(-REACH, REACH * (1 - 1e-12)) + REACH
        piece = (place / step).floor()
        rest = place - step * piece
        third, second, first, value = (row[piece.long() + self.first_piece] for row in self.coefficients.unbind())
        return value + rest * (first + rest * (second + rest * third))
