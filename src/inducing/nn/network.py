"""Networks: a list of Bayesian layers and plain modules, and the inducing points that pass through all of them.

`Network.draw` is the first step of "draw, then run": only the M inducing points pass through the layers. Each layer samples
its weights given its inputs at the inducing points, and passes its outputs to the next layer. This is the paper's Algorithm
1 without the data, since the weights do not depend on the data.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from inducing.autocasting import without_autocasting
from inducing.checks import check_inputs, check_precision, check_whole
from inducing.linalg.noise import seeded
from inducing.nn.context import BuildContext, DrawContext, Shape
from inducing.nn.density import LogDensity
from inducing.nn.draw import Chain, Function, FunctionSamples, NetworkDraw, Variables
from inducing.nn.initialisation import infer_input_shape, initial_inducing_points, initial_targets
from inducing.nn.layers.base import Layer
from inducing.nn.layers.deterministic import Deterministic
from inducing.nn.layers.gp import GPLayer
from inducing.nn.layers.normalisation import InducingNorm
from inducing.nn.layers.parts import Parts
from inducing.nn.likelihoods import Likelihood
from inducing.nn.posteriors.optimal import OptimalModule
from inducing.nn.validation import (
    check_conditionals,
    check_inducing_use,
    check_optimal,
    check_other_size,
    check_resampling,
)


class Network(nn.Module):
    """A Bayesian network.

    All parameters are created here, so an optimiser can be built at once. The network has the dtype and device of the
    inducing points, or torch's defaults.

    Arguments:
        layers: Bayesian layers, residual blocks, modules without parameters, and frozen modules (`Deterministic`), in any
            order.
        inducing_points: Initial inducing points, rows of the training inputs, e.g. ``x[:100]``.
        inducing_targets: Targets of these rows, as initial pseudo-outputs of the last layer; class labels (integers) become
            one-hot.
        num_inducing: Number of inducing points to draw from N(0, 1), if none are given.
        input_shape: Shape of one input row, if neither inducing points nor a first `Linear` determine it. Inducing images
            may have a different height and width if the network runs on both, as with global pooling.
        learn_inducing_locations: Whether the inducing points are learned.
        generator: Source of random initial values. Default: torch's global generator.

    Example:
        >>> import inducing, torch
        >>> from torch import nn
        >>> x = torch.randn(20, 3)
        >>> layers = [inducing.Linear(3, 8), nn.ReLU(), inducing.Linear(8, 1)]
        >>> network = inducing.Network(layers, inducing_points=x[:5])
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
                "inducing.Linear(50, 1)], ...). Pass instances, not classes"
            )
        self.layers = Parts(layers)
        bayesian = self.layers.bayesian_layers()
        if not bayesian:
            raise ValueError("a network needs at least one Bayesian layer, e.g. inducing.Linear(3, 1)")
        check_inducing_use(self.layers, inducing_points, num_inducing)
        check_resampling(self.layers)
        check_conditionals(self.layers)
        check_optimal(self.layers, learn_inducing_locations)
        self.layer_names = tuple(name for name, _ in bayesian)
        self.input_shape = infer_input_shape(self.layers[0], inducing_points, input_shape)
        points = initial_inducing_points(inducing_points, num_inducing, self.input_shape, generator)
        targets = initial_targets(inducing_targets, points, self.last_layer)
        self.has_inducing_targets = targets is not None
        # needed to build the network again: layers may take the number of their own inducing inputs from it
        self.num_initial_points = None if points is None else len(points)
        self.learn_inducing_locations = learn_inducing_locations
        # only the user's inducing points are examples of the data; random ones are not
        rows = None if inducing_points is None else points
        last_name, last = bayesian[-1]
        names = [name for name, _ in self.layers.walk()]
        users_above = {name for name, _ in self.layers.inducing_users()} & set(names[names.index(last_name) + 1 :])
        shape = self.input_shape if points is None else tuple(points.shape[1:])
        start = BuildContext(shape, self.num_initial_points, targets, last, bool(users_above), rows, generator)
        # as the parameters that are created
        reference = torch.empty(0) if inducing_points is None else inducing_points
        for _, part in self.layers.walk():
            if isinstance(part, Deterministic):
                part.to(reference.device, reference.dtype)
        new = [layer for _, layer in bayesian if not layer.is_built]
        try:
            self.output_shape = self.layers.build("layers", start).input_shape
        except (ValueError, RuntimeError) as error:
            # the layers can still become part of another network
            for layer in new:
                layer.is_built = False
            if shape == self.input_shape or not isinstance(error, ValueError):
                raise
            sizes = f"The inducing images have shape {shape}, the inputs {self.input_shape}"
            raise ValueError(f"{error}. {sizes}") from error
        for _, layer in bayesian:
            if layer.starts_from_rows:
                for name, parameter in layer.posterior.named_parameters():
                    parameter.requires_grad_(learn_inducing_locations or name != "inducing_inputs")
        if not self.layers.inducing_users():
            # the points were only the initial inducing inputs of single layers
            points = None
        if points is not None and learn_inducing_locations:
            self.inducing_points = nn.Parameter(points)
        else:
            self.register_buffer("inducing_points", points)
        if inducing_points is not None:
            self.to(device=inducing_points.device, dtype=inducing_points.dtype)
        if shape != self.input_shape:
            check_other_size(self, shape)

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
        """The last module of the network if it is a Bayesian layer, else None."""
        ending = self.layers[-1]
        return ending if isinstance(ending, Layer) else None

    @property
    def optimal_last(self) -> OptimalModule | None:
        """The posterior of the last layer if it is an `OptimalInducing` posterior, else None."""
        last = self.last_layer
        return last.posterior if last is not None and isinstance(last.posterior, OptimalModule) else None

    @property
    def has_tight_conditional(self) -> bool:
        """Whether the last layer is a Gaussian process with a tight conditional."""
        return isinstance(self.last_layer, GPLayer) and self.last_layer.conditional == "tight"

    def defining_parameters(self) -> dict[str, Tensor]:
        """Return the tensors that define what the variables of the layers mean, by name.

        These are the kernels and inducing inputs of Gaussian processes, and the inducing points under an `InducingNorm`.
        """
        layers = {name: layer for name, layer in self.layers.bayesian_layers() if isinstance(layer, GPLayer)}
        found = {
            f"{name}.kernel.{parameter}": tensor
            for name, layer in layers.items()
            for parameter, tensor in layer.kernel.named_parameters()
        }
        own = {f"{name}.posterior.inducing_inputs": layer.posterior.inducing_inputs for name, layer in layers.items()}
        matter = bool(layers) or any(isinstance(part, InducingNorm) for _, part in self.layers.walk())
        inputs = {**own, "inducing_points": self.inducing_points if matter else None}
        return found | {name: tensor for name, tensor in inputs.items() if tensor is not None}

    def assemble(self, functions: Sequence[Function]) -> Chain:
        """Return the network as a function in which the given functions replace the Bayesian layers, in order."""
        if len(functions) != len(self.layer_names):
            raise ValueError(f"got {len(functions)} functions for {len(self.layer_names)} Bayesian layers")
        return self.layers.assemble(iter(functions))

    def draw(
        self,
        num_samples: int,
        generator: Generator | None = None,
        consistent: bool = False,
        *,
        likelihood: Likelihood | None = None,
        closed_form_kl: bool = False,
        joint: bool = False,
        given_prior: bool = False,
    ) -> NetworkDraw:
        """Sample functions, with the KL of each layer.

        Arguments:
            num_samples: Number S of functions.
            generator: Source of the noise. Default: torch's global generator.
            consistent: Whether functions must return the same outputs at each call. Otherwise some layers resample for
                every row (local reparameterisation, Gaussian processes).
            likelihood: The likelihood. Only a last layer with an `OptimalInducing` posterior needs it.
            closed_form_kl: Whether KLs are computed in closed form given the layers' inputs, instead of as specified by
                the posteriors. The expectation is the same. With few samples the gradient is much less noisy. If all
                layers are regressions, with the gradients of `inducing.linalg.reparameterisation`, this affects only a
                last Gaussian process, whose values are integrated out.
            joint: Whether Gaussian processes are drawn jointly at all rows of a call, with dense covariance matrices. Two
                calls are independent given the values at the inducing inputs. Other layers sample their weights.
            given_prior: Whether closed-form KLs of weights are given the sampled variables of their priors, such as a scale,
                instead of expectations over them.
        """
        check_precision(self.dtype)
        suffice = closed_form_kl and all(
            layer.posterior.sampled_kl_has_low_variance for _, layer in self.layers.bayesian_layers()
        )
        inducing = None if self.inducing_points is None else self.inducing_points[None]
        num_samples = check_whole("num_samples", num_samples)
        context = DrawContext(
            num_samples, generator, consistent, closed_form_kl, suffice, likelihood, joint, given_prior
        )
        with without_autocasting(self.device):
            return self.layers.sample("layers", inducing, context)

    def log_density(
        self, variables: NetworkDraw | Sequence[Variables | Tensor], likelihood: Likelihood | None = None
    ) -> LogDensity:
        """Return the log-densities of given weights and Gaussian process values, of each layer and sample, in float64.

        The inducing points of this network are sent through the given layers. The layers' log-densities under the posterior,
        each given the layers below, add up to log Q of all weights.

        Arguments:
            variables: A draw of this network, or of another one with the same layers. Or the variables of each Bayesian
                layer, in the order of `layer_names`: weights (S, fan-in, outputs) with the bias last, or values of a
                Gaussian process at its inducing inputs (S, M, outputs).
            likelihood: The likelihood. Only a last layer with an `OptimalInducing` posterior needs it.

        Example:
            >>> import inducing
            >>> network = inducing.models.mlp(3, 1, num_inducing=5)
            >>> draw = network.draw(num_samples=4)
            >>> density = network.log_density(draw)
            >>> density.posterior.shape  # three layers, four samples
            torch.Size([3, 4])
        """
        listed = [draw.variables for draw in variables.layers] if isinstance(variables, NetworkDraw) else variables
        if len(listed) != len(self.layer_names):
            raise ValueError(f"got the variables of {len(listed)} layers for {len(self.layer_names)} Bayesian layers")
        given = [_as_variables(*each) for each in zip(self.layer_names, listed, strict=True)]
        inducing = None if self.inducing_points is None else self.inducing_points[None]
        context = DrawContext(len(given[0].values), likelihood=likelihood)
        with without_autocasting(self.device):
            layers = self.layers.log_density("layers", inducing, iter(given), context).layers
        return LogDensity(*(torch.stack(each) for each in zip(*layers, strict=True)))

    def forward(
        self, x: Float[Tensor, "B *in"], num_samples: int = 1, likelihood: Likelihood | None = None
    ) -> Float[Tensor, "S B *out"]:
        """Draw functions and run them on a batch."""
        x = check_inputs(x, self.input_shape, self.dtype)
        return self.draw(num_samples, likelihood=likelihood)(x)

    def sample_functions(
        self, num_samples: int, seed: int = 0, likelihood: Likelihood | None = None
    ) -> FunctionSamples:
        """Sample functions as a frozen module, (B, ...) -> (S, B, ...).

        The same seed gives the same functions on every device and for every batch size.

        Arguments:
            num_samples: Number of functions.
            seed: Seed of the draw.
            likelihood: The likelihood. Only a last layer with an `OptimalInducing` posterior needs it.
        """
        with torch.no_grad():
            draw = self.draw(num_samples, seeded(seed, "functions"), consistent=True, likelihood=likelihood)
        return FunctionSamples(draw.function, self.input_shape, self.dtype)

    @property
    def _reference(self) -> Tensor:
        """A tensor with the network's dtype and device: a parameter, or a buffer of a prior if nothing is learned."""
        # lazy iteration, since a network may have hundreds of tensors and every step calls this
        for tensor in itertools.chain(self.parameters(), self.buffers()):
            return tensor
        raise AssertionError("every layer has a parameter or a buffer")


def _as_variables(name: str, given: Variables | Tensor | None) -> Variables:
    """Return the given variables of a layer. Raise an error if its draw has none."""
    if given is None:
        raise ValueError(
            f"the draw of {name} has no weights, so it has no density. A layer with local reparameterisation samples new "
            "weights for every row: use network.draw(..., consistent=True)"
        )
    return Variables(given) if isinstance(given, Tensor) else given
