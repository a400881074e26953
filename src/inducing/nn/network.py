"""Networks: a list of Bayesian layers and plain modules, and the inducing points that run through all of them.

`Network.draw` is the first pass of "draw, then run": it sends only the M inducing points through the layers. Each layer
samples its weights given what they look like there, and hands its own outputs on. This is the paper's Algorithm 1
without the data, which the weights do not depend on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from inducing.checks import check_inputs, check_whole
from inducing.linalg.cholesky import located
from inducing.linalg.noise import seeded
from inducing.nn.draw import Chain, Draw, Function, FunctionSamples, NetworkDraw, Sum
from inducing.nn.initialisation import first_inducing_points, first_targets, infer_input_shape
from inducing.nn.layers import Layer, Place, Shape
from inducing.nn.likelihoods import Likelihood
from inducing.nn.normalisation import InducingNorm
from inducing.nn.plain import Folded, check_plain
from inducing.nn.pseudo import Optimum
from inducing.nn.structure import (
    Residual,
    bayesian_layers,
    check_inducing_use,
    check_optimal,
    check_resampling,
    inducing_users,
)


class Network(nn.Module):
    """A Bayesian network.

    All parameters are made here, so an optimiser can be built at once. The network takes the dtype and device of the
    inducing points, or torch's defaults.

    Arguments:
        layers: Bayesian layers, residual blocks, and deterministic modules without parameters, in any order.
        inducing_points: First values of the inducing points, rows of the training inputs, e.g. ``x[:100]``.
        inducing_targets: The targets of those rows, as first values of the last layer's pseudo-outputs; class labels
            (integers) become one-hot.
        num_inducing: Number of inducing points, drawn from N(0, 1), where none are given.
        input_shape: Shape of one input row, where neither inducing points nor a first `Linear` tell it.
        learn_inducing_locations: Whether the inducing points are learned.
        generator: Source of random initial values; the default is torch's global one.

    Example:
        >>> import inducing, torch
        >>> from torch import nn
        >>> x = torch.randn(20, 3)
        >>> network = inducing.Network([inducing.Linear(3, 8), nn.ReLU(), inducing.Linear(8, 1)], inducing_points=x[:5])
        >>> draw = network.draw(num_samples=4)
        >>> draw(x).shape, draw.layers[0].kl.shape
        (torch.Size([4, 20, 1]), torch.Size([4]))
    """

    inducing_points: Tensor | None

    def __init__(
        self,
        layers: Sequence[nn.Module],
        inducing_points: Float[Tensor, "M *in"] | None = None,
        inducing_targets: Float[Tensor, "M O"] | Int[Tensor, " M"] | None = None,
        num_inducing: int | None = None,
        input_shape: int | Shape | None = None,
        learn_inducing_locations: bool = True,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(layers, Sequence) or not all(isinstance(layer, nn.Module) for layer in layers):
            raise TypeError(
                "layers must be a list of modules, e.g. Network([inducing.Linear(3, 50), torch.nn.ReLU(), "
                "inducing.Linear(50, 1)], ...); a class in it must be called"
            )
        self.layers = nn.ModuleList(layers)
        bayesian = bayesian_layers(self.layers)
        if not bayesian:
            raise ValueError("a network needs at least one Bayesian layer, e.g. inducing.Linear(3, 1)")
        check_inducing_use(self.layers, inducing_points, num_inducing)
        check_resampling(self.layers)
        self.layer_names = tuple(name for name, _ in bayesian)
        self.input_shape = infer_input_shape(self.layers[0], inducing_points, input_shape)
        points = first_inducing_points(inducing_points, num_inducing, self.input_shape, generator)
        check_optimal(self.layers, learn_inducing_locations)
        targets = first_targets(inducing_targets, points, self.last_layer)
        self.has_inducing_targets = targets is not None
        # what else is needed to build it again: layers may have taken their number of inducing inputs from here
        self.num_first_points = None if points is None else len(points)
        self.learn_inducing_locations = learn_inducing_locations
        # rows that tell where the data are; drawn at random they tell nothing
        rows = None if inducing_points is None else points
        start = Place(self.input_shape, None if points is None else len(points), targets, False, rows, generator)
        self.output_shape = _build(self.layers, start, bayesian[-1][1]).input_shape
        for _, layer in bayesian:
            if layer.starts_from_rows:
                for name, parameter in layer.posterior.named_parameters():
                    parameter.requires_grad_(learn_inducing_locations or name != "inducing_inputs")
        if not inducing_users(self.layers):
            # they were first values for inducing inputs that each layer has for itself
            points = None
        if points is not None and learn_inducing_locations:
            self.inducing_points = nn.Parameter(points)
        else:
            self.register_buffer("inducing_points", points)
        if inducing_points is not None:
            self.to(device=inducing_points.device, dtype=inducing_points.dtype)

    @property
    def num_inducing(self) -> int | None:
        """M, or None for a network without inducing points."""
        return None if self.inducing_points is None else len(self.inducing_points)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that inputs must have."""
        return self._reference.dtype

    @property
    def device(self) -> torch.device:
        """The device that inputs must be on."""
        return self._reference.device

    @property
    def last_layer(self) -> Layer | None:
        """The Bayesian layer whose outputs are those of the network, or None if it ends in anything else."""
        ending = self.layers[-1]
        return ending if isinstance(ending, Layer) else None

    @property
    def optimal_last(self) -> Optimum | None:
        """The posterior of the last layer, if it is the exact one given the layers below."""
        last = self.last_layer
        return last.posterior if last is not None and isinstance(last.posterior, Optimum) else None

    def assemble(self, functions: Sequence[Function]) -> Chain:
        """The network as a function, with these functions in the places of its Bayesian layers, in their order."""
        if len(functions) != len(self.layer_names):
            raise ValueError(f"{len(functions)} functions were given for {len(self.layer_names)} Bayesian layers")
        return _assemble(self.layers, iter(functions))

    def draw(self, num_samples: int, generator: Generator | None = None, consistent: bool = False) -> NetworkDraw:
        """Sample functions, with the KL of each layer.

        Arguments:
            num_samples: S, the number of functions.
            generator: Source of the noise; the default is torch's global one.
            consistent: Ask for functions that give the same answer each time, also from layers that would rather
                resample for every row (local reparameterisation).
        """
        num_samples = check_whole("num_samples", num_samples)
        inducing = None if self.inducing_points is None else self.inducing_points[None]
        return _draw(self.layers, "layers", inducing, num_samples, generator, consistent)

    def tie(self, likelihood: Likelihood) -> None:
        """Let a last layer with an OptimalInducing posterior take its precision from the noise of a likelihood."""
        for name, layer in bayesian_layers(self.layers):
            if isinstance(layer.posterior, Optimum):
                if not isinstance(likelihood, layer.posterior.noise):
                    raise TypeError(
                        f"{name} has an {layer.posterior_spec} posterior, which is for a {layer.posterior.noise.__name__} "
                        f"likelihood only, not for {type(likelihood).__name__}"
                    )
                layer.posterior.tie(likelihood)

    @contextmanager
    def closed_form_kl(self, enabled: bool = True) -> Iterator[None]:
        """Take the KL of layers in closed form given their inputs, inside this context, whatever their specification.

        Its mean is that of the samples of log Q - log P. With few posterior samples its gradient is much less noisy, but
        where all layers are regressions with the gradients of `inducing.linalg.reparameterisation`: nothing changes there.
        """
        posteriors = [layer.posterior for _, layer in bayesian_layers(self.layers)]
        changes = enabled and not all(posterior.sample_is_quiet for posterior in posteriors)
        modules = posteriors if changes else []
        before = [module.use_closed_form for module in modules]
        for module in modules:
            module.use_closed_form = True
        try:
            yield
        finally:
            for module, value in zip(modules, before, strict=True):
                module.use_closed_form = value

    def forward(self, x: Float[Tensor, "B *in"], num_samples: int = 1) -> Float[Tensor, "S B *out"]:
        """Draw functions and run them on a batch."""
        x = check_inputs(x, self.input_shape, self.dtype)
        return self.draw(num_samples)(x)

    def sample_functions(self, num_samples: int, seed: int = 0) -> FunctionSamples:
        """Sample functions as a frozen module, (B, ...) -> (S, B, ...).

        The same seed gives the same functions, on every device, however the rows are batched.
        """
        with torch.no_grad():
            draw = self.draw(num_samples, seeded(seed, "functions"), consistent=True)
        return FunctionSamples(draw.function, self.input_shape, self.dtype)

    @property
    def _reference(self) -> Tensor:
        """Any tensor of the network: its parameters, or the priors' buffers where nothing is learned."""
        # lazily: a network may have hundreds, and this is asked in every step
        for tensor in itertools.chain(self.parameters(), self.buffers()):
            return tensor
        raise AssertionError("every layer has a parameter or a buffer")


def _draw(
    modules: nn.ModuleList,
    path: str,
    inducing: Float[Tensor, "#S M *in"] | None,
    num_samples: int,
    generator: Generator | None,
    consistent: bool,
) -> NetworkDraw:
    """Send the inducing points through a list of modules, sampling each layer on the way."""
    steps: list[Function] = []
    draws: list[Draw] = []
    for index, module in enumerate(modules):
        where = f"{path}.{index}"
        step: Function
        if isinstance(module, Layer):
            with located(f"{where} {module}"):
                draw = module.draw(inducing, num_samples, generator, consistent)
            step, inducing = draw.function, draw.inducing
            draws.append(draw)
        elif isinstance(module, Residual):
            body = _draw(module.layers, f"{where}.layers", inducing, num_samples, generator, consistent)
            shortcut = _draw(module.shortcut, f"{where}.shortcut", inducing, num_samples, generator, consistent)
            step = Sum(body.function, shortcut.function)
            inducing = None if body.inducing is None or shortcut.inducing is None else body.inducing + shortcut.inducing
            draws += body.layers + shortcut.layers
        elif isinstance(module, InducingNorm):
            assert inducing is not None
            step = module.draw(inducing)
            inducing = step(inducing)
        else:
            step = Folded(module)
            inducing = None if inducing is None else step(inducing)
        steps.append(step)
    return NetworkDraw(Chain(tuple(steps)), inducing, tuple(draws))


def _assemble(modules: nn.ModuleList, functions: Iterator[Function]) -> Chain:
    steps: list[Function] = []
    for module in modules:
        if isinstance(module, Layer):
            steps.append(next(functions))
        elif isinstance(module, Residual):
            # the body first, as in `_draw`
            steps.append(Sum(_assemble(module.layers, functions), _assemble(module.shortcut, functions)))
        elif isinstance(module, InducingNorm):
            raise TypeError(
                f"{module} takes its statistics from inducing points, and functions that are given have none; leave it out"
            )
        else:
            steps.append(Folded(module))
    return Chain(tuple(steps))


def _build(modules: nn.ModuleList, place: Place, last: Layer, path: str = "layers") -> Place:
    """Walk the shapes and example rows through a list of modules, make the parameters of each layer, return the end."""
    for index, module in enumerate(modules):
        name = f"{path}.{index}"
        if isinstance(module, Layer):
            try:
                is_last = module is last
                with located(f"{name} {module}"):
                    shape = module.build(place._replace(targets=place.targets if is_last else None, is_last=is_last))
                rows = module.mean_rows(place.rows)
            except (ValueError, RuntimeError) as error:
                raise type(error)(f"{name} {module}: {error}") from None
        elif isinstance(module, Residual):
            body = _build(module.layers, place, last, f"{name}.layers")
            shortcut = _build(module.shortcut, place, last, f"{name}.shortcut")
            shape = body.input_shape
            if shape != shortcut.input_shape:
                raise ValueError(
                    f"{name}: the branches of a Residual must end in one shape, got {shape} and {shortcut.input_shape}"
                )
            rows = None if body.rows is None or shortcut.rows is None else body.rows + shortcut.rows
        elif isinstance(module, InducingNorm):
            shape = place.input_shape
            module.check(name, shape, place.num_inducing)
            rows = None if place.rows is None else module.draw(place.rows[None])(place.rows[None])[0]
        else:
            shape = check_plain(module, name, place.input_shape)
            rows = None if place.rows is None else Folded(module)(place.rows[None])[0]
        place = place._replace(input_shape=shape, rows=rows)
    return place
