"""The draws of several models in one predictive distribution.

    p(y | x) = 1/S sum_s p_m(s)(y | f_s(x)),   where f_s is a draw of model m(s), with its own likelihood and scale

The weight of a model is its share of the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from inducing.nn.likelihoods import Categorical, Likelihood
from inducing.prediction.predictive import Predictive


class Member(NamedTuple):
    """The draws of one model.

    Arguments:
        num_draws: Number of its draws.
        num_outputs: Number of its outputs. Models with fewer outputs than others have zeros after them.
        likelihood: Its likelihood.
        location: Mean of the original targets.
        scale: Standard deviation of the original targets.
    """

    num_draws: int
    num_outputs: int
    likelihood: Likelihood
    location: Tensor | float
    scale: Tensor | float


class Blended(Likelihood):
    """The likelihoods of several models, each for its own draws. It is made for predictions only.

    Arguments:
        members: The models.
        of_draw: The position of the model of each draw. Default: each model has its number of draws, in this order.
    """

    def __init__(self, members: Sequence[Member], of_draw: Int[Tensor, " S"] | None = None) -> None:
        super().__init__()
        self.members = tuple(members)
        counts = torch.tensor([member.num_draws for member in self.members])
        self.of_draw = torch.arange(len(counts)).repeat_interleave(counts) if of_draw is None else of_draw
        # all models have targets of the same kind
        self.support = self.members[0].likelihood.support  # type: ignore[misc]

    def for_draws(self, chosen: Int[Tensor, " T"]) -> Blended:
        return Blended(self.members, self.of_draw[chosen])

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        first = self.members[0]
        return first.likelihood.check_targets(y, (first.num_outputs,))

    def log_prob(self, outputs: Float[Tensor, "S B outputs"], y: Tensor) -> Float[Tensor, "S B"]:
        def of(member: Member, own: Tensor) -> Tensor:
            density = member.likelihood.log_prob(own, _standardise(member, y))
            if not y.is_floating_point():
                return density
            # p(location + scale z) = p(z) / scale, for each target that is not missing
            scale = torch.as_tensor(member.scale, dtype=own.dtype).log().expand(y.shape)
            return density - torch.where(y.isnan(), 0.0, scale).sum(-1)

        return self._join(outputs, of)

    def mean(self, outputs: Float[Tensor, "S B outputs"]) -> Float[Tensor, "S B O"]:
        return self._join(outputs, lambda member, own: _restore(member, member.likelihood.mean(own)))

    def variance(self, outputs: Float[Tensor, "S B outputs"]) -> Float[Tensor, "S B O"]:
        return self._join(outputs, lambda member, own: member.scale**2 * member.likelihood.variance(own))

    def sample(
        self, outputs: Float[Tensor, "S B outputs"], generator: Generator | None = None
    ) -> Float[Tensor, "S B O"]:
        return self._join(outputs, lambda member, own: _restore(member, member.likelihood.sample(own, generator)))

    def log_cdf(self, outputs: Float[Tensor, "S B outputs"], y: Float[Tensor, "B O"]) -> Float[Tensor, "S B O"]:
        return self._join(outputs, lambda member, own: member.likelihood.log_cdf(own, _standardise(member, y)))

    def log_survival(self, outputs: Float[Tensor, "S B outputs"], y: Float[Tensor, "B O"]) -> Float[Tensor, "S B O"]:
        return self._join(outputs, lambda member, own: member.likelihood.log_survival(own, _standardise(member, y)))

    def icdf(self, outputs: Float[Tensor, "S B outputs"], probability: float) -> Float[Tensor, "S B O"]:
        return self._join(outputs, lambda member, own: _restore(member, member.likelihood.icdf(own, probability)))

    def _join(self, outputs: Tensor, function: Callable[[Member, Tensor], Tensor]) -> Tensor:
        """Apply a function to the outputs of each model, and return the results in the order of the draws."""
        of_draw = self.of_draw.to(outputs.device)
        draws = [(of_draw == place).nonzero()[:, 0] for place in range(len(self.members))]
        parts = [
            function(member, outputs[own][..., : member.num_outputs])
            for member, own in zip(self.members, draws, strict=True)
            if len(own)
        ]
        return torch.cat(parts)[torch.cat(draws).argsort()]


def blend(predictions: Sequence[Predictive]) -> Predictive:
    """Join predictions of the same rows by several models. Each draw has the same weight.

    Arguments:
        predictions: The predictions, all of numbers or all of the same classes.
    """
    first, *others = predictions
    if not others:
        return first
    outputs = [each.outputs for each in predictions]
    if isinstance(first.likelihood, Categorical):
        return Predictive(torch.cat(outputs), first.likelihood, seed=first.seed)
    widths = [each.shape[-1] for each in outputs]
    padded = [
        torch.nn.functional.pad(each, (0, max(widths) - width)) for each, width in zip(outputs, widths, strict=True)
    ]
    members = [
        Member(len(each.outputs), width, each.likelihood, each.location, each.scale)
        for each, width in zip(predictions, widths, strict=True)
    ]
    return Predictive(torch.cat(padded), Blended(members), seed=first.seed)


def _standardise(member: Member, y: Tensor) -> Tensor:
    return (y - member.location) / member.scale if y.is_floating_point() else y


def _restore(member: Member, z: Tensor) -> Tensor:
    return member.location + member.scale * z if z.is_floating_point() else z
