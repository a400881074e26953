"""Draw, then run: what a layer and a network return when they are sampled.

A draw is a value. It holds a function that can be run on any data, as often as one likes, and the KL of having drawn
it. No later change of the parameters alters it.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.checks import check_inputs


@dataclass(frozen=True, eq=False)
class Function(ABC):
    """A drawn function (S, B, ...) -> (S, B, ...). A leading axis of 1 is the same in every sample.

    Subclasses are frozen dataclasses whose fields are tensors, plain modules, other functions, tuples of those, or
    anything that need not move between devices.
    """

    # whether the function works in float64, whatever the dtype of its inputs
    keeps_float64: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Run the function."""

    @property
    def consistent(self) -> bool:
        """Whether the function gives the same answer each time. If not, it resamples on every call."""
        return True

    def map(self, change: Callable[[Tensor], Tensor]) -> Function:
        """Return the same function with ``change`` applied to each of its tensors, e.g. to move it to a device."""
        return dataclasses.replace(
            self, **{f.name: _map(getattr(self, f.name), change) for f in dataclasses.fields(self)}
        )

    def leaves(self) -> Iterator[tuple[str, Tensor | nn.Module]]:
        """Walk over the tensors and modules, with their names."""
        for field in dataclasses.fields(self):
            yield from _leaves(field.name, getattr(self, field.name))

    def float64_names(self) -> Iterator[str]:
        """Walk over the names of those tensors that stay in float64."""
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


class Draw(NamedTuple):
    """What one layer returns.

    Arguments:
        function: The sampled layer, (S, B, ...) -> (S, B, ...).
        inducing: Its output at the inducing points, or None where there are none. Layers above are conditioned on it; the
            function of a last Gaussian process has it integrated out.
        kl: One sample of log Q - log P of the weights (or its expectation in closed form).
        prior_kl: The same for the variables of the prior itself, such as its scale; zero where it has none.
    """

    function: Function
    inducing: Float[Tensor, "S M *out"] | None
    kl: Float[Tensor, " S"]
    prior_kl: Float[Tensor, " S"]


class NetworkDraw(NamedTuple):
    """What a network returns.

    Arguments:
        function: The sampled network. ``function.steps`` are its parts, one for each entry of the network's list, so
            ``Chain(function.steps[:3])`` is the function up to the third.
        inducing: The output at the inducing points.
        layers: The draws of the Bayesian layers, in order; those inside a residual block too.
    """

    function: Chain
    inducing: Float[Tensor, "S M *out"] | None
    layers: tuple[Draw, ...]

    def __call__(self, x: Float[Tensor, "B *in"]) -> Float[Tensor, "S B *out"]:
        """Run the sampled network on a batch."""
        return self.function(x[None])


class FunctionSamples(nn.Module):
    """Frozen functions as a plain module, (B, ...) -> (S, B, ...): it can be moved, saved and differentiated in x.

    Calls with the same rows give the same answers, in whatever batches they come.

    Arguments:
        function: The functions to freeze.
        input_shape: Shape of one input row.
        dtype: Dtype of the function's tensors.
    """

    def __init__(self, function: Function, input_shape: tuple[int, ...], dtype: torch.dtype) -> None:
        super().__init__()
        self.input_shape = input_shape
        if not function.consistent:
            raise ValueError("only a consistent function can be frozen; this one resamples on every call")
        # contiguous, as in a file: the order in memory decides how products are rounded
        function = copy.deepcopy(function.map(lambda tensor: tensor.detach().contiguous()))
        # the tensors live in the buffers; the structure keeps only their shapes
        self._structure = function.map(lambda tensor: tensor.to("meta"))
        for name, leaf in self._structure.leaves():
            if isinstance(leaf, nn.Module):
                self.add_module(name, leaf)
        for name, leaf in function.leaves():
            if isinstance(leaf, Tensor):
                self.register_buffer(name, leaf)
        # buffers are registered in the order in which map meets them
        self._names = tuple(self._buffers)
        self._float64_names = tuple(function.float64_names())
        # carries the dtype of inputs, which Gaussian processes do not share, through .double() and the like
        device = next((leaf.device for _, leaf in function.leaves() if isinstance(leaf, Tensor)), None)
        self.register_buffer("_input_dtype", torch.empty(0, dtype=dtype, device=device), persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that inputs must have."""
        return self.get_buffer("_input_dtype").dtype

    @property
    def function(self) -> Function:
        """The functions that were frozen, (S, B, ...) -> (S, B, ...), with the tensors of this module."""
        tensors = map(self.get_buffer, self._names)
        return self._structure.map(lambda _: next(tensors))

    @property
    def device(self) -> torch.device:
        """The device that inputs must be on."""
        return self.get_buffer("_input_dtype").device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FunctionSamples:
        wide = {name: self.get_buffer(name) for name in self._float64_names}
        super()._apply(fn, recurse)
        # a Gaussian process moves between devices, but .float() would cost it its digits
        for name, tensor in wide.items():
            self._buffers[name] = tensor.to(self.get_buffer(name).device)
        return self

    def forward(self, x: Float[Tensor, "B *in"]) -> Float[Tensor, "S B *out"]:
        """Run all sampled functions on a batch."""
        return self.function(check_inputs(x, self.input_shape, self.dtype)[None])


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
