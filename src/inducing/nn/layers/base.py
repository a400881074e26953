"""Base classes of the parts of a network.

A `Part` is one entry of a network's list: a Bayesian layer, a residual block, a normalisation or a plain module. `build`
creates all its parameters. `sample` draws it as a function and applies this function to the inducing points. `log_density`
does the same with given weights, and returns their log-densities. A `Layer` is a part with a prior and a posterior.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor, nn

from inducing.errors import FactorisationError
from inducing.linalg.cholesky import located
from inducing.nn.context import BuildContext, DrawContext, Shape
from inducing.nn.density import LayerDensity, PartDensity
from inducing.nn.draw import Draw, Function, PartDraw, Variables
from inducing.nn.posteriors.base import Posterior, PosteriorModule


class Part(nn.Module, ABC):
    """One entry of a network's list of layers."""

    @abstractmethod
    def build(self, name: str, context: BuildContext) -> BuildContext:
        """Create the parameters, and return the context of the next part."""

    @abstractmethod
    def sample(self, name: str, inducing: Float[Tensor, "#S M *in"] | None, context: DrawContext) -> PartDraw:
        """Draw a function, given the inputs at the inducing points."""

    def log_density(
        self,
        name: str,
        inducing: Float[Tensor, "#S M *in"] | None,
        variables: Iterator[Variables],
        context: DrawContext,
    ) -> PartDensity:
        """Return the log-densities of given variables. Each Bayesian layer in the part takes the next of them.

        The default is for a part without Bayesian layers.
        """
        return PartDensity(self.sample(name, inducing, context).inducing, ())

    @abstractmethod
    def assemble(self, functions: Iterator[Function]) -> Function:
        """Return the part as a function. Each Bayesian layer in it takes the next of the given functions."""

    def walk(self, name: str) -> Iterator[tuple[str, Part]]:
        """Iterate over this part and the parts inside it, in the order in which they are drawn."""
        yield name, self

    @property
    def needs_inducing(self) -> bool:
        """Whether the part depends on the global inducing points."""
        return False

    @property
    def needs_inducing_because(self) -> str:
        """The reason why the part depends on the inducing points, for error messages."""
        return f"is an {self}"

    @property
    def resamples(self) -> bool:
        """Whether drawn functions resample for every row. No part with inducing points can then follow."""
        return False


class Layer(Part, ABC):
    """A layer with a prior and a posterior.

    A layer has no parameters until a `Network` builds it. It cannot be built twice, so it belongs to one network.
    """

    posterior_spec: Posterior
    posterior: PosteriorModule
    out_features: int
    is_built: bool

    @property
    @abstractmethod
    def input_shape(self) -> Shape | None:
        """The shape of one input row, or None if the layer accepts several shapes."""

    @abstractmethod
    def create(self, context: BuildContext) -> Shape:
        """Create the parameters and return the shape of one output row."""

    @abstractmethod
    def draw(self, inducing: Float[Tensor, "#S M *in"] | None, context: DrawContext) -> Draw:
        """Sample the layer.

        Arguments:
            inducing: The layer's inputs at the inducing points. A leading axis of size 1 means that all samples share
                them. None in a network without inducing points.
            context: Number of samples, source of noise, kind of KL.
        """

    def density(
        self, inducing: Float[Tensor, "#S M *in"] | None, variables: Variables, context: DrawContext
    ) -> tuple[Float[Tensor, "S M *out"] | None, LayerDensity]:
        """Return the outputs at the inducing points with given variables, and the log-densities of these variables."""
        raise NotImplementedError(
            f"{type(self).__name__} has no method density(inducing, variables, context), which the density of given weights "
            "needs"
        )

    @property
    def needs_inducing(self) -> bool:
        return self.posterior_spec.needs_inducing

    @property
    def needs_inducing_because(self) -> str:
        return f"has a {type(self.posterior_spec).__name__} posterior"

    @property
    def starts_from_rows(self) -> bool:
        """Whether the network's inducing points are the initial values of the layer's own inducing inputs."""
        return False

    def mean_rows(self, rows: Tensor | None) -> Tensor | None:
        """Return the outputs of the layer's mean function at these rows, or None if it has none."""
        return None

    def build(self, name: str, context: BuildContext) -> BuildContext:
        try:
            if self.is_built:
                raise RuntimeError("the layer is already part of a network. Create a new layer")
            with located(name, self):
                shape = self.create(context)
            self.is_built = True
            rows = self.mean_rows(context.example_rows)
        except FactorisationError:
            # its message names the layer already
            raise
        except (ValueError, RuntimeError) as error:
            kind = ValueError if isinstance(error, ValueError) else RuntimeError
            raise kind(f"{name} {self}: {error}") from None
        return replace(context, input_shape=shape, example_rows=rows)

    def sample(self, name: str, inducing: Float[Tensor, "#S M *in"] | None, context: DrawContext) -> PartDraw:
        if not self.is_built:
            raise RuntimeError(f"{self} has no parameters yet. Put it in a Network, which creates them")
        with located(name, self):
            draw = self.draw(inducing, context)
        return PartDraw(draw.function, draw.inducing, (draw,))

    def log_density(
        self,
        name: str,
        inducing: Float[Tensor, "#S M *in"] | None,
        variables: Iterator[Variables],
        context: DrawContext,
    ) -> PartDensity:
        with located(name, self):
            try:
                above, density = self.density(inducing, next(variables), context)
            except ValueError as error:
                raise ValueError(f"{name} {self}: {error}") from None
        return PartDensity(above, (density,))

    def assemble(self, functions: Iterator[Function]) -> Function:
        return next(functions)

    def _check_values(self, values: Tensor, rows: int) -> None:
        """Raise an error if given weights or values do not have the shape of this layer's."""
        if values.ndim != 3 or tuple(values.shape[1:]) != (rows, self.out_features):
            raise ValueError(
                f"the given weights or values must have shape (S, {rows}, {self.out_features}), got {tuple(values.shape)}"
            )

    def _check_features(self, context: BuildContext) -> None:
        if context.input_shape != self.input_shape:
            flatten = ". Put torch.nn.Flatten() before it" if len(context.input_shape) > 1 else ""
            wanted = " x ".join(map(str, self.input_shape or ()))
            raise ValueError(f"expected rows of {wanted} features, got rows of shape {context.input_shape}{flatten}")

    def __repr__(self) -> str:
        # on one line, without submodules, since the specification describes the parameters
        return f"{type(self).__name__}({self.extra_repr()})"
