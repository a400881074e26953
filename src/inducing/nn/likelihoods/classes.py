"""Likelihoods of classification: labels of C classes, or a binary target for each output."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn import functional

from inducing.checks import check_tensor, is_known
from inducing.nn.likelihoods.base import Likelihood, Support
from inducing.nn.likelihoods.integers import integer_quantile
from inducing.nn.likelihoods.targets import check_like, check_shape, check_whole


class Bernoulli(Likelihood):
    """y is 1 with probability sigmoid(f) and 0 otherwise, independently for each output.

    Targets have the shape of the outputs, one column for each binary target. Their values are 0 and 1 in any dtype: bool,
    integer or floating point.

    Example:
        >>> import inducing, torch
        >>> outputs, y = torch.zeros(1, 2, 1), torch.tensor([[True], [False]])
        >>> inducing.Bernoulli().log_prob(outputs, y).exp()
        tensor([[0.5000, 0.5000]])
    """

    support: ClassVar[Support] = "integers"

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        remedy = "use (y + 1) / 2 for -1 and 1, Categorical() for more classes, Poisson() for counts"
        return check_whole(check_shape(y, output_shape), 1, "0 or 1, or False or True", remedy)

    def log_prob(
        self, outputs: Float[Tensor, "S B *O"], y: Float[Tensor, "B *O"] | Int[Tensor, "B *O"] | Bool[Tensor, "B *O"]
    ) -> Float[Tensor, "S B"]:
        check_like(y, outputs.shape)
        # log sigmoid(f) for y = 1, log sigmoid(-f) for y = 0
        return functional.logsigmoid((2 * y.to(outputs.dtype) - 1) * outputs).flatten(2).sum(-1)

    def mean(self, outputs: Float[Tensor, "S B *O"]) -> Float[Tensor, "S B *O"]:
        return torch.sigmoid(outputs)

    def variance(self, outputs: Float[Tensor, "S B *O"]) -> Float[Tensor, "S B *O"]:
        # p (1 - p)
        return torch.sigmoid(outputs) * torch.sigmoid(-outputs)

    def sample(self, outputs: Float[Tensor, "S B *O"], generator: Generator | None = None) -> Float[Tensor, "S B *O"]:
        device = outputs.device if generator is None else generator.device
        return torch.bernoulli(self.mean(outputs).to(device), generator=generator).to(outputs.device)

    def log_cdf(self, outputs: Float[Tensor, "S B *O"], y: Tensor) -> Float[Tensor, "S B *O"]:
        # P(Y <= y) is 0 for y < 0, 1 - p for 0 <= y < 1, and 1 for y >= 1
        return torch.where(y < 0, -torch.inf, torch.where(y < 1, functional.logsigmoid(-outputs), 0.0))

    def log_survival(self, outputs: Float[Tensor, "S B *O"], y: Tensor) -> Float[Tensor, "S B *O"]:
        return torch.where(y < 0, 0.0, torch.where(y < 1, functional.logsigmoid(outputs), -torch.inf))

    def icdf(self, outputs: Float[Tensor, "S B *O"], probability: float) -> Float[Tensor, "S B *O"]:
        return integer_quantile(self, outputs[None], probability).to(outputs.dtype)


class Categorical(Likelihood):
    """y is one of C classes, with probabilities softmax(f). Targets are labels 0 .. C-1."""

    support: ClassVar[Support] = "classes"

    def check_targets(self, y: object, output_shape: tuple[int, ...]) -> Tensor:
        y = check_tensor("y", y)
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise TypeError(
                f"y must have integer class labels, got {y.dtype}; use y.long(), or Gaussian() for regression"
            )
        if y.ndim != 1:
            hint = "; use y[:, 0]" if y.ndim == 2 and y.shape[1] == 1 else "; use y.argmax(-1) if it is one-hot"
            raise ValueError(f"y must have shape (B,), one label per row, got {tuple(y.shape)}{hint}")
        classes = output_shape[-1]
        if is_known(y) and len(y) and not (int(y.min()) >= 0 and int(y.max()) < classes):
            raise ValueError(
                f"y has labels from {int(y.min())} to {int(y.max())}, but the network has {classes} outputs. "
                f"Labels must be 0..{classes - 1}"
            )
        return y.long()

    def log_prob(self, outputs: Float[Tensor, "S B C"], y: Int[Tensor, " B"]) -> Float[Tensor, "S B"]:
        labels = y[None, :, None].expand(len(outputs), -1, -1)
        return functional.log_softmax(outputs, -1).gather(-1, labels)[..., 0]

    def mean(self, outputs: Float[Tensor, "S B C"]) -> Float[Tensor, "S B C"]:
        return functional.softmax(outputs, -1)

    def sample(self, outputs: Float[Tensor, "S B C"], generator: Generator | None = None) -> Int[Tensor, "S B"]:
        device = outputs.device if generator is None else generator.device
        probabilities = self.mean(outputs).flatten(0, 1).to(device)
        return torch.multinomial(probabilities, 1, generator=generator).view(outputs.shape[:2]).to(outputs.device)
