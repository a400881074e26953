"""A list of Bayesian layers and plain modules that are applied one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jaxtyping import Float
from torch import Tensor, nn

from inducing.nn.context import BuildContext, DrawContext
from inducing.nn.density import LayerDensity, PartDensity
from inducing.nn.draw import Chain, Draw, Function, NetworkDraw, Variables
from inducing.nn.layers.base import Layer, Part
from inducing.nn.layers.plain import Plain


class Parts(nn.ModuleList):
    """The modules of a network, or of a branch of a residual block."""

    def __init__(self, modules: Iterable[nn.Module] | None = None) -> None:
        super().__init__(modules)
        # made once, since every draw uses them. They are not submodules: names and printed forms leave them out.
        self._plain = {module: Plain(module) for module in self if not isinstance(module, Part)}

    def _get_name(self) -> str:
        # part of the printed form of a network, which checkpoints compare
        return "ModuleList"

    def named_parts(self, name: str) -> Iterator[tuple[str, Part]]:
        """Iterate over the entries as parts, with their names."""
        for index, module in enumerate(self):
            yield f"{name}.{index}", module if isinstance(module, Part) else self._plain.get(module) or Plain(module)

    def walk(self, name: str = "layers") -> Iterator[tuple[str, Part]]:
        """Iterate over all parts, also those inside residual blocks, in the order in which they are drawn."""
        for part_name, part in self.named_parts(name):
            yield from part.walk(part_name)

    def bayesian_layers(self) -> list[tuple[str, Layer]]:
        """List the Bayesian layers with their names, in the order in which they are drawn."""
        return [(name, part) for name, part in self.walk() if isinstance(part, Layer)]

    def inducing_users(self) -> list[tuple[str, Part]]:
        """List the parts that depend on the global inducing points."""
        return [(name, part) for name, part in self.walk() if part.needs_inducing]

    def build(self, name: str, context: BuildContext) -> BuildContext:
        """Create the parameters of all parts, and return the context after the last."""
        for part_name, part in self.named_parts(name):
            context = part.build(part_name, context)
        return context

    def sample(self, name: str, inducing: Float[Tensor, "#S M *in"] | None, context: DrawContext) -> NetworkDraw:
        """Draw all parts in order and apply them to the inducing points."""
        steps: list[Function] = []
        draws: list[Draw] = []
        for part_name, part in self.named_parts(name):
            function, inducing, layers = part.sample(part_name, inducing, context)
            steps.append(function)
            draws += layers
        return NetworkDraw(Chain(tuple(steps)), inducing, tuple(draws))

    def log_density(
        self,
        name: str,
        inducing: Float[Tensor, "#S M *in"] | None,
        variables: Iterator[Variables],
        context: DrawContext,
    ) -> PartDensity:
        """Return the log-densities of given variables, one set for each Bayesian layer, in order."""
        densities: list[LayerDensity] = []
        for part_name, part in self.named_parts(name):
            inducing, layers = part.log_density(part_name, inducing, variables, context)
            densities += layers
        return PartDensity(inducing, tuple(densities))

    def assemble(self, functions: Iterator[Function]) -> Chain:
        """Return all parts as one function. Each Bayesian layer takes the next of the given functions."""
        return Chain(tuple(part.assemble(functions) for _, part in self.named_parts("")))
