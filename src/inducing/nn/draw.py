"""Draw, then run: the values that layers and networks return when they are sampled.

A draw holds a function, which can be run on any data any number of times, and its KL. It does not change when the
parameters change later.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.checks import check_inputs
from inducing.exporting import export_module
from inducing.linalg.noise import seeded, standard_normal
from inducing.linalg.precision import Precision


@dataclass(frozen=True, eq=False)
class Function(ABC):
    """A drawn function (S, B, ...) -> (S, B, ...). A leading axis of size 1 means that all samples share the input.

    Subclasses are frozen dataclasses. Their fields are tensors, plain modules, other functions, tuples of these, or
    values that do not move between devices.
    """

    # whether the function computes in float64 for any dtype of its inputs
    keeps_float64: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Run the function."""

    @property
    def consistent(self) -> bool:
        """Whether the function returns the same outputs at each call. If not, it resamples at every call."""
        return True

    def map(self, change: Callable[[Tensor], Tensor]) -> Function:
        """Return the same function with ``change`` applied to each of its tensors, e.g. to move it to a device."""
        return dataclasses.replace(
            self, **{f.name: _map(getattr(self, f.name), change) for f in dataclasses.fields(self)}
        )

    def leaves(self) -> Iterator[tuple[str, Tensor | nn.Module]]:
        """Iterate over the tensors and modules, with their names."""
        for field in dataclasses.fields(self):
            yield from _leaves(field.name, getattr(self, field.name))

    def float64_names(self) -> Iterator[str]:
        """Iterate over the names of the tensors that stay in float64."""
        if self.keeps_float64:
            yield from (name for name, _ in self.leaves())
        else:
            for field in dataclasses.fields(self):
                yield from _float64_names(field.name, getattr(self, field.name))


@dataclass(frozen=True, eq=False)
class Chain(Function):
    """Functions applied one after the other."""

    steps: tuple[Function, ...]

    def __call__(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step(x)
        return x

    @property
    def consistent(self) -> bool:
        return all(step.consistent for step in self.steps)


@dataclass(frozen=True, eq=False)
class Sum(Function):
    """The sum of two functions of the same input: a residual block."""

    body: Function
    shortcut: Function

    def __call__(self, x: Tensor) -> Tensor:
        return self.body(x) + self.shortcut(x)

    @property
    def consistent(self) -> bool:
        return self.body.consistent and self.shortcut.consistent


@dataclass(frozen=True, eq=False)
class Concatenation(Function):
    """The samples of several functions of the same input, one after the other."""

    functions: tuple[Function, ...]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([function(x) for function in self.functions])

    @property
    def consistent(self) -> bool:
        return all(function.consistent for function in self.functions)


class Variables(NamedTuple):
    """The random variables of a drawn layer, see `Network.log_density`.

    Arguments:
        values: The weights, (S, fan-in, outputs) with the bias last; or the values of a Gaussian process at its inducing
            inputs, (S, M, outputs).
        precision: The sampled precision of the weights, of a prior with variables of its own. Other priors ignore it.
        inputs: The inducing inputs of a Gaussian process. Without them, those of the network are assumed.
    """

    values: Float[Tensor, "S F O"]
    precision: Precision | None = None
    inputs: Float[Tensor, "#S F D"] | None = None


class Draw(NamedTuple):
    """A drawn layer. It can be called: ``draw.layers[1](draw.layers[0](x[None]))``.

    Arguments:
        function: The sampled layer, (S, B, ...) -> (S, B, ...).
        inducing: Its output at the inducing points, or None if there are none. Layers above are conditioned on it. The
            function of a last Gaussian process layer has it integrated out.
        kl: One sample of log Q - log P of the weights, or its expectation.
        prior_kl: The same for the prior's own variables, such as its scale. Zero if it has none.
        variables: The weights or values that were sampled. None if the function samples new weights for each row.
    """

    function: Function
    inducing: Float[Tensor, "S M *out"] | None
    kl: Float[Tensor, " S"]
    prior_kl: Float[Tensor, " S"]
    variables: Variables | None = None

    def __call__(self, h: Float[Tensor, "#S B *in"]) -> Float[Tensor, "S B *out"]:
        """Run the sampled layer on its inputs. A leading axis of size 1 means that all samples share them."""
        samples = len(self.kl)
        if h.ndim < 3 or len(h) not in (1, samples):
            raise ValueError(
                f"inputs of a drawn layer must be (S, B, ...) with S = {samples}, or (1, B, ...) for all samples, got "
                f"{tuple(h.shape)}. Use h[None] for a batch that all samples share"
            )
        return self.function(h)


class PartDraw(NamedTuple):
    """A drawn part of a network.

    Arguments:
        function: The sampled part.
        inducing: Its output at the inducing points, or None if there are none.
        layers: The draws of the Bayesian layers in it.
    """

    function: Function
    inducing: Float[Tensor, "S M *out"] | None
    layers: tuple[Draw, ...]


class NetworkDraw(NamedTuple):
    """A drawn network.

    Arguments:
        function: The sampled network. ``function.steps`` are its parts, one for each entry of the network's list, so
            ``Chain(function.steps[:3])`` is the function up to the third.
        inducing: The output at the inducing points.
        layers: The draws of the Bayesian layers, also of those inside residual blocks, in order.
    """

    function: Chain
    inducing: Float[Tensor, "S M *out"] | None
    layers: tuple[Draw, ...]

    def __call__(self, x: Float[Tensor, "B *in"]) -> Float[Tensor, "S B *out"]:
        """Run the sampled network on a batch."""
        return self.function(x[None])


def layer_functions(draw: NetworkDraw) -> list[Function]:
    """The function of each Bayesian layer outside of residual blocks, with the modules between it and the layer below."""
    functions: list[Function] = []
    steps: list[Function] = []
    for step in draw.function.steps:
        steps.append(step)
        if any(step is layer.function for layer in draw.layers):
            functions.append(Chain(tuple(steps)))
            steps = []
    return functions


class FunctionSamples(nn.Module):
    """Frozen functions as a plain module, (B, ...) -> (S, B, ...), which can be moved, saved and differentiated in x.

    The same row gives the same outputs in every call and every batch.

    Arguments:
        function: The functions to freeze.
        input_shape: Shape of one input row.
        dtype: Dtype of the function's tensors.
    """

    def __init__(self, function: Function, input_shape: tuple[int, ...], dtype: torch.dtype) -> None:
        super().__init__()
        self.input_shape = input_shape
        if not function.consistent:
            raise ValueError("the function resamples at every call. Only a consistent function can be frozen")
        # contiguous, as in a file, since the memory layout affects how products are rounded
        function = copy.deepcopy(function.map(lambda tensor: tensor.detach().contiguous()))
        # the buffers hold the tensors; the structure keeps only their shapes
        self._structure = function.map(lambda tensor: tensor.to("meta"))
        for name, leaf in self._structure.leaves():
            if isinstance(leaf, nn.Module):
                self.add_module(name, leaf)
        for name, leaf in function.leaves():
            if isinstance(leaf, Tensor):
                self.register_buffer(name, leaf)
        # buffers are registered in the order in which `map` visits them
        self._names = tuple(self._buffers)
        self._float64_names = tuple(function.float64_names())
        # keeps track of the dtype of inputs through .double() etc.; tensors of Gaussian processes have another dtype
        device = next((leaf.device for _, leaf in function.leaves() if isinstance(leaf, Tensor)), None)
        self.register_buffer("_input_dtype", torch.empty(0, dtype=dtype, device=device), persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that inputs must have."""
        return self.get_buffer("_input_dtype").dtype

    @property
    def function(self) -> Function:
        """The frozen functions, (S, B, ...) -> (S, B, ...), with the tensors of this module."""
        tensors = map(self.get_buffer, self._names)
        return self._structure.map(lambda _: next(tensors))

    @property
    def device(self) -> torch.device:
        """The device that inputs must be on."""
        return self.get_buffer("_input_dtype").device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FunctionSamples:
        wide = {name: self.get_buffer(name) for name in self._float64_names}
        super()._apply(fn, recurse)
        # Gaussian processes move between devices, but must stay in float64 under .float()
        for name, tensor in wide.items():
            self._buffers[name] = tensor.to(self.get_buffer(name).device)
        return self

    def forward(self, x: Float[Tensor, "B *in"]) -> Float[Tensor, "S B *out"]:
        """Run all sampled functions on a batch."""
        return self.function(check_inputs(x, self.input_shape, self.dtype)[None])

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the functions to a file that other programs run: ONNX (.onnx), or `torch.export` (.pt2).

        The input ``x`` has any number of rows; the output ``outputs`` is (S, B, ...). No factorisation or solve is left in
        the file. An ONNX file is compared with torch before it is written.
        """
        example = standard_normal((2, *self.input_shape), self.get_buffer("_input_dtype"), seeded(0, "example rows"))
        export_module(self, example, path, ["outputs"])


def _map(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Function):
        return value.map(change)
    if isinstance(value, tuple):
        return tuple(_map(item, change) for item in value)
    return value


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Tensor | nn.Module]]:
    if isinstance(value, Tensor | nn.Module):
        yield name, value
    elif isinstance(value, Function):
        for inner, leaf in value.leaves():
            yield f"{name}_{inner}", leaf
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _leaves(f"{name}_{index}", item)


def _float64_names(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Function):
        yield from (f"{name}_{inner}" for inner in value.float64_names())
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _float64_names(f"{name}_{index}", item)
