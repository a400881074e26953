"""Frozen modules with parameters, e.g. the trained body of a network whose last layer is Bayesian."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor, nn

from inducing.nn.context import BuildContext, DrawContext
from inducing.nn.draw import Function, PartDraw
from inducing.nn.layers.base import Part
from inducing.nn.layers.plain import Folded, check_behaviour


class Deterministic(Part):
    """A frozen copy of a module. It is not trained, has no posterior, and is always in evaluation mode.

    In evaluation mode, BatchNorm uses its running statistics, and Dropout does nothing. A network with this part is saved if
    it consists of modules of `torch.nn` in an `nn.Sequential`, or of classes that are registered (`inducing.register`).

    Arguments:
        body: The module. It must treat the rows of a batch independently.

    Example:
        >>> import inducing, torch
        >>> from torch import nn
        >>> body = nn.Sequential(nn.Linear(3, 8), nn.ReLU())
        >>> layers = [inducing.Deterministic(body), inducing.Linear(8, 1)]
        >>> network = inducing.Network(layers, inducing_points=torch.randn(20, 3))
        >>> network(torch.randn(5, 3), num_samples=2).shape
        torch.Size([2, 5, 1])
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        if not isinstance(body, nn.Module):
            raise TypeError(f"Deterministic takes a module, e.g. a trained torch.nn.Sequential, got {body!r}")
        if any(isinstance(part, Part) for part in body.modules()):
            raise ValueError(
                f"Deterministic freezes plain modules, but {type(body).__name__} contains layers of inducing"
            )
        self.body = without_inplace(body).eval().requires_grad_(False)

    def train(self, mode: bool = True) -> Deterministic:
        super().train(False)
        return self

    def forward(self, x: Float[Tensor, "B *in"]) -> Float[Tensor, "B *out"]:
        """Run the module on a batch."""
        outputs: Tensor = self.body(x)
        return outputs

    def build(self, name: str, context: BuildContext) -> BuildContext:
        shape, rows = check_behaviour(self, name, context.input_shape), context.example_rows
        return replace(context, input_shape=shape, example_rows=None if rows is None else self(rows))

    def sample(self, name: str, inducing: Float[Tensor, "#S M *in"] | None, context: DrawContext) -> PartDraw:
        function = Folded(self)
        return PartDraw(function, None if inducing is None else function(inducing), ())

    def assemble(self, functions: Iterator[Function]) -> Function:
        return Folded(self)


def without_inplace(module: nn.Module) -> nn.Module:
    """A copy of a module whose activations do not overwrite their inputs."""
    copied = copy.deepcopy(module)
    for part in copied.modules():
        if vars(part).get("inplace"):
            part.inplace = False  # type: ignore[assignment]
    return copied
