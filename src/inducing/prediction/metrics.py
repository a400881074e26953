"""How good a prediction is, on the scale of the targets."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

from inducing.nn.likelihoods import Bernoulli, Categorical
from inducing.prediction.predictive import Predictive


def rmse(predictive: Predictive, y: Float[Tensor, "B *O"] | Int[Tensor, "B *O"] | Bool[Tensor, "B *O"]) -> float:
    """Root of the mean squared error of the predictive mean, over rows and outputs.

    For a Bernoulli likelihood it is the root of the Brier score.
    """
    if predictive.likelihood.support == "classes":
        raise TypeError("classes have no squared error; use accuracy or log_likelihood")
    mean = predictive.mean
    return float((mean - predictive.check_targets(y).to(mean.dtype)).square().mean().sqrt())


def log_likelihood(predictive: Predictive, y: Tensor) -> float:
    """Mean over rows of log p(y | x), in nats: a density for real targets, a probability for classes and counts."""
    return float(predictive.log_prob(y).mean())


def accuracy(predictive: Predictive, y: Tensor) -> float:
    """Fraction of rows whose most probable class is the true one; for a Bernoulli likelihood, of rows and outputs."""
    if isinstance(predictive.likelihood, Bernoulli):
        return float(((predictive.mean > 0.5) == predictive.check_targets(y).bool()).float().mean())
    if not isinstance(predictive.likelihood, Categorical):
        raise TypeError(
            f"accuracy is for classes, not for a {type(predictive.likelihood).__name__} likelihood; use rmse"
        )
    return float((predictive.mean.argmax(-1) == predictive.check_targets(y)).float().mean())
