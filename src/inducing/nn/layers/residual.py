"""Residual blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor, nn

from inducing.nn.context import BuildContext, DrawContext
from inducing.nn.density import PartDensity
from inducing.nn.draw import Function, PartDraw, Sum, Variables
from inducing.nn.layers.base import Part
from inducing.nn.layers.parts import Parts


class Residual(Part):
    """A residual block, x -> shortcut(x) + layers(x).

    Arguments:
        layers: Bayesian layers, plain modules or further residual blocks.
        shortcut: A module or a list of modules on the other branch. Default: the identity.

    Example:
        >>> import inducing
        >>> from torch import nn
        >>> block = inducing.Residual(nn.ReLU(), inducing.Linear(50, 50))
    """

    def __init__(self, *layers: nn.Module, shortcut: nn.Module | Sequence[nn.Module] | None = None) -> None:
        super().__init__()
        self.layers = Parts(layers)
        self.shortcut = Parts([shortcut] if isinstance(shortcut, nn.Module) else shortcut or [])

    def build(self, name: str, context: BuildContext) -> BuildContext:
        body = self.layers.build(f"{name}.layers", context)
        shortcut = self.shortcut.build(f"{name}.shortcut", context)
        if body.input_shape != shortcut.input_shape:
            raise ValueError(
                f"{name}: the branches of a Residual must have outputs of the same shape, "
                f"got {body.input_shape} and {shortcut.input_shape}"
            )
        ends = body.example_rows, shortcut.example_rows
        return replace(body, example_rows=None if ends[0] is None or ends[1] is None else ends[0] + ends[1])

    def sample(self, name: str, inducing: Float[Tensor, "#S M *in"] | None, context: DrawContext) -> PartDraw:
        body = self.layers.sample(f"{name}.layers", inducing, context)
        shortcut = self.shortcut.sample(f"{name}.shortcut", inducing, context)
        above = None if body.inducing is None or shortcut.inducing is None else body.inducing + shortcut.inducing
        return PartDraw(Sum(body.function, shortcut.function), above, body.layers + shortcut.layers)

    def log_density(
        self,
        name: str,
        inducing: Float[Tensor, "#S M *in"] | None,
        variables: Iterator[Variables],
        context: DrawContext,
    ) -> PartDensity:
        body = self.layers.log_density(f"{name}.layers", inducing, variables, context)
        shortcut = self.shortcut.log_density(f"{name}.shortcut", inducing, variables, context)
        above = None if body.inducing is None or shortcut.inducing is None else body.inducing + shortcut.inducing
        return PartDensity(above, body.layers + shortcut.layers)

    def assemble(self, functions: Iterator[Function]) -> Function:
        # the body first, as in `sample`
        return Sum(self.layers.assemble(functions), self.shortcut.assemble(functions))

    def walk(self, name: str) -> Iterator[tuple[str, Part]]:
        yield from self.layers.walk(f"{name}.layers")
        yield from self.shortcut.walk(f"{name}.shortcut")
