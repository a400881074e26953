"""A trained network of torch as a Bayesian network.

Chosen layers become Bayesian layers, whose posteriors start at the trained weights (`inducing.nn.starting`). All other
parameters stay as they are, in `Deterministic` parts.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.checks import check_kind, check_known
from inducing.errors import DataWarning
from inducing.linalg.convolution.geometry import Boundary
from inducing.nn.context import Shape
from inducing.nn.draw import Function
from inducing.nn.layers import Conv2d, Deterministic, Layer, Linear, Residual
from inducing.nn.network import Network
from inducing.nn.posteriors import Posterior, PosteriorOfLayers, posteriors_for_layers
from inducing.nn.priors import Prior, as_prior
from inducing.nn.starting import LOG_PRECISION, start_at
from inducing.nn.tracing import ADVICE, Operation, Steps, operations, trace

T = TypeVar("T")


def bayesianize(
    module: nn.Module,
    inducing_points: Float[Tensor, "M *in"] | None = None,
    layers: str | Sequence[str] = "all",
    *,
    prior: Prior | str | Mapping[str, Prior | str] = "neal",
    posterior: PosteriorOfLayers | Mapping[str, Posterior | str] = "global",
    boundary: Boundary = "circular",
    log_precision: float = LOG_PRECISION,
    num_inducing: int | None = None,
    input_shape: int | Shape | None = None,
    learn_inducing_locations: bool = True,
    generator: Generator | None = None,
) -> Network:
    """Convert a trained module into a Bayesian network that starts at its weights.

    The module is traced by `torch.fx` in evaluation mode and is not changed. It may consist of `nn.Linear`, `nn.Conv2d`,
    activations, pooling, flattening and additions of two branches (residual blocks). BatchNorm is folded into the layer
    before it, with its running statistics. Dropout is left out, with a warning.

    With a global posterior, the pseudo-outputs are the module's outputs at the inducing points. The functions of a layer are
    close to the module's if there are at least as many inducing points as inputs of the layer. In a convolution each patch
    of an inducing image counts.

    Arguments:
        module: The module.
        inducing_points: Initial inducing points, rows of the training inputs, e.g. ``x[:100]``.
        layers: The layers that become Bayesian: "all", "last", or their names in the module. Others are frozen.
        prior: A prior or its name; or a dictionary with the names of layers as keys. Default of a layer: "neal".
        posterior: "global", "factorised", "point" or an instance; "A->B", with B for the last layer; a list with one for
            each Bayesian layer; or a dictionary with the names of layers as keys. Default of a layer: "global".
        boundary: Boundary of the inducing images, see `inducing.Conv2d`.
        log_precision: Logarithm of the initial precision of the pseudo-outputs. Larger values are closer to the module.
        num_inducing: Number of inducing points to draw from N(0, 1), if none are given.
        input_shape: Shape of one input row, if neither inducing points nor a first `nn.Linear` determine it.
        learn_inducing_locations: Whether the inducing points are learned.
        generator: Source of random initial values. Default: torch's global generator.

    Example:
        >>> import inducing, torch
        >>> from torch import nn
        >>> x = torch.randn(100, 3)
        >>> module = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 1))
        >>> network = inducing.bayesianize(module, x[:30])
        >>> last_only = inducing.bayesianize(module, x[:30], layers="last")
        >>> [type(layer).__name__ for layer in last_only.layers]
        ['Deterministic', 'ReLU', 'Linear']
    """
    check_kind("module", module, nn.Module, "a torch.nn.Module")
    steps = trace(module)
    names = _chosen_names(steps, layers)
    priors = _by_name("prior", prior, names, "neal") if isinstance(prior, Mapping) else [prior] * len(names)
    posteriors = _by_name("posterior", posterior, names, "global") if isinstance(posterior, Mapping) else posterior
    settings = zip(map(as_prior, priors), posteriors_for_layers(posteriors, len(names)), strict=True)
    conversion = _Conversion(dict(zip(names, settings, strict=True)), boundary)
    network = Network(
        conversion.parts(steps),
        inducing_points,
        num_inducing=num_inducing,
        input_shape=input_shape,
        learn_inducing_locations=learn_inducing_locations,
        generator=generator,
    )
    weights = [conversion.weights[layer] for _, layer in network.layers.bayesian_layers()]
    _check_same_function(network, weights, module)
    start_at(network, weights, log_precision)
    _warn_of_few_inducing_points(network, names)
    return network


class _Conversion:
    """Makes the parts of a network, and keeps the trained weights of its Bayesian layers."""

    def __init__(self, settings: dict[str, tuple[Prior, Posterior]], boundary: Boundary) -> None:
        self.settings, self.boundary = settings, boundary
        self.weights: dict[nn.Module, Float[Tensor, "F O"]] = {}

    def parts(self, steps: Steps) -> list[nn.Module]:
        return [
            self.part(step)
            if isinstance(step, Operation)
            else Residual(*self.parts(step.body), shortcut=self.parts(step.shortcut))
            for step in steps
        ]

    def part(self, step: Operation) -> nn.Module:
        name, module = step.name, step.module
        if name not in self.settings:
            return Deterministic(module) if _has_tensors(module) else module
        prior, posterior = self.settings[name]
        layer: Layer
        if isinstance(module, nn.Conv2d):
            sizes = (module.in_channels, module.out_channels, module.kernel_size, module.stride, _padding(name, module))
            layer = Conv2d(*sizes, prior, posterior, self.boundary, module.bias is not None)  # type: ignore[arg-type]
        else:
            assert isinstance(module, nn.Linear)
            layer = Linear(module.in_features, module.out_features, module.bias is not None, prior, posterior)
        # (outputs, inputs) or (outputs, channels, height, width) to (fan-in, outputs), with the bias in the last row
        rows = [module.weight.detach().flatten(1).mT, *([] if module.bias is None else [module.bias.detach()[None]])]
        self.weights[layer] = torch.cat(rows)
        return layer


def _chosen_names(steps: Steps, layers: str | Sequence[str]) -> list[str]:
    """The names of the layers that become Bayesian, in the order of the network."""
    known = [each.name for each in operations(steps) if type(each.module) in (nn.Linear, nn.Conv2d)]
    if not known:
        raise ValueError("the module has no nn.Linear or nn.Conv2d that could become Bayesian")
    if layers == "last":
        return known[-1:]
    if layers != "all":
        if isinstance(layers, str) or not layers:
            raise ValueError(f'layers must be "all", "last" or a list of names, e.g. {known[-1:]}, got {layers!r}')
        for name in layers:
            check_known("layer", name, known)
        return [name for name in known if name in layers]
    for each in operations(steps):
        if each.name not in known and _has_tensors(each.module):
            raise ValueError(
                f"{each.name} {each.module} has parameters or buffers, but there is no Bayesian layer of its kind, and it "
                'cannot be folded into a layer before it. Use layers="last" or a list of names, which freezes the others'
            )
    return known


def _by_name(what: str, given: Mapping[str, T], names: list[str], default: T) -> list[T]:
    """List the settings of all Bayesian layers."""
    for name in given:
        check_known(f"layer in {what}", name, names)
    return [given.get(name, default) for name in names]


def _padding(name: str, module: nn.Conv2d) -> tuple[int, ...]:
    """The numbers of zeros around a map. Raise an error for convolutions that `Conv2d` does not know."""
    same = module.padding == "same" and all(size % 2 for size in module.kernel_size)
    plain = module.groups == 1 and set(module.dilation) == {1} and module.padding_mode == "zeros"
    if not plain or (isinstance(module.padding, str) and not same and module.padding != "valid"):
        raise ValueError(
            f"{name} {module} cannot become Bayesian: inducing.Conv2d has no groups, no dilation and pads with zeros. "
            "List the names of the other layers, and this one is frozen"
        )
    if isinstance(module.padding, str):
        return tuple(size // 2 if same else 0 for size in module.kernel_size)
    return module.padding


def _has_tensors(module: nn.Module) -> bool:
    return bool([*module.parameters(), *module.buffers()])


def _check_same_function(network: Network, weights: list[Tensor], module: nn.Module) -> None:
    """Raise an error if the network with the trained weights is not the module."""
    functions: list[Function] = []
    for (_, layer), each in zip(network.layers.bayesian_layers(), weights, strict=True):
        assert isinstance(layer, Linear | Conv2d)
        functions.append(layer.function(each.to(network.device, network.dtype)[None]))
    size = 3 * math.prod(network.input_shape)
    rows = torch.linspace(-2.0, 2.0, size, dtype=network.dtype, device=network.device).sin()
    rows = rows.reshape(3, *network.input_shape)
    original = copy.deepcopy(module).eval().to(rows.device, rows.dtype)
    with torch.no_grad():
        # a copy, since the module may work in place
        wanted, found = original(rows.clone()), network.assemble(functions)(rows[None])[0]
    largest = float(wanted.abs().max())
    if found.shape != wanted.shape or not torch.allclose(found, wanted, rtol=1e-3, atol=1e-3 * largest):
        raise ValueError(f"{type(module).__name__} was traced, but the result is another function. {ADVICE}")


def _warn_of_few_inducing_points(network: Network, names: list[str]) -> None:
    few = [
        f"{name} ({layer.in_features + layer.bias})"
        for name, (_, layer) in zip(names, network.layers.bayesian_layers(), strict=True)
        if isinstance(layer, Linear)
        and layer.needs_inducing
        and (network.num_inducing or 0) < layer.in_features + layer.bias
    ]
    if few:
        warnings.warn(
            f"there are {network.num_inducing} inducing points, and layers with more inputs: {', '.join(few)}. Their "
            "functions start close to the module's at the inducing points only. Use more inducing points",
            DataWarning,
            stacklevel=3,
        )
