"""How good a prediction is, on the scale of the targets."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from inducing.nn.likelihoods import Categorical
from inducing.prediction.predictive import Predictive


def rmse(predictive: Predictive, y: Float[Tensor, "B *O"]) -> float:
    """Root of the mean squared error of the predictive mean, over rows and outputs."""
    if isinstance(predictive.likelihood, Categorical):
        raise TypeError("classes have no squared error; use accuracy or log_likelihood")
    return float((predictive.mean - predictive.check_targets(y)).square().mean().sqrt())


def log_likelihood(predictive: Predictive, y: Tensor) -> float:
    """Mean over rows of log p(y | x), in nats."""
    return float(predictive.log_prob(y).mean())


def accuracy(predictive: Predictive, y: Int[Tensor, " B"]) -> float:
    """Fraction of rows whose most probable class is the true one."""
    if not isinstance(predictive.likelihood, Categorical):
        raise TypeError(
            f"accuracy is for classes, not for a {type(predictive.likelihood).__name__} likelihood; use rmse"
        )
    return float((predictive.mean.argmax(-1) == predictive.check_targets(y)).float().mean())
