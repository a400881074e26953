"""Plain modules between Bayesian layers. They must be deterministic, have no parameters and treat rows independently.

A module with parameters would be trained without a prior. A module that mixes rows (BatchNorm) or adds noise (Dropout) would
treat inducing points and data differently.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from inducing.nn.context import BuildContext, DrawContext, Shape
from inducing.nn.draw import Function, PartDraw
from inducing.nn.layers.base import Part

# modules that need no batch axis
ELEMENTWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Tanh)


@dataclass(frozen=True, eq=False)
class Folded(Function):
    """A plain module, run with the samples folded into the batch: (S, B, ...) -> (S B, ...) -> (S, B, ...)."""

    module: nn.Module

    def __call__(self, x: Tensor) -> Tensor:
        if type(self.module) in ELEMENTWISE:
            activated: Tensor = self.module(x)
            return activated
        folded: Tensor = self.module(x.flatten(0, 1))
        return folded.unflatten(0, x.shape[:2])


class Plain(Part):
    """A plain module as a part of a network.

    Arguments:
        module: The module.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def build(self, name: str, context: BuildContext) -> BuildContext:
        shape, rows = check_plain(self.module, name, context.input_shape), context.example_rows
        return replace(
            context, input_shape=shape, example_rows=None if rows is None else Folded(self.module)(rows[None])[0]
        )

    def sample(self, name: str, inducing: Float[Tensor, "#S M *in"] | None, context: DrawContext) -> PartDraw:
        function = Folded(self.module)
        return PartDraw(function, None if inducing is None else function(inducing), ())

    def assemble(self, functions: Iterator[Function]) -> Function:
        return Folded(self.module)

    def walk(self, name: str) -> Iterator[tuple[str, Part]]:
        if any(isinstance(part, Part) for part in self.module.modules()):
            raise ValueError(
                f"{name} {type(self.module).__name__} contains Bayesian layers. Put them in the list one by one, "
                "or in an inducing.Residual"
            )
        yield name, self


def check_plain(module: nn.Module, name: str, input_shape: Shape) -> Shape:
    """Raise an error if a module cannot be used between Bayesian layers. Return the shape of its outputs."""
    for part in module.modules():
        _check_type(part, name)
    parameters = [parameter for parameter, _ in module.named_parameters()]
    if parameters:
        raise ValueError(
            f"{name} {module} has parameters ({', '.join(parameters)}), which would be trained without a prior. "
            "Use a Bayesian layer (inducing.Linear, inducing.Conv2d), inducing.InducingNorm() or a module without "
            "parameters. inducing.Deterministic(module) keeps it frozen"
        )
    return check_behaviour(module, name, input_shape)


def _check_type(module: nn.Module, name: str) -> None:
    if isinstance(module, _DropoutNd):
        raise ValueError(
            f"{name} {module} adds noise, which would differ between inducing points and data. "
            "Remove it: Bayesian layers need no dropout"
        )
    if isinstance(module, _BatchNorm):
        raise ValueError(
            f"{name} {module} mixes the rows of a batch, so a drawn network would not be a function of one row. "
            "Use inducing.InducingNorm(), whose statistics come from the inducing points, or leave it out"
        )


def check_behaviour(module: nn.Module, name: str, input_shape: Shape) -> Shape:
    """Raise an error if a module is not a function of single rows. Return the shape of its outputs."""
    # a fixed probe, the same on every machine, which does not change the global random state
    probe = torch.linspace(-2.0, 2.0, 3 * torch.Size(input_shape).numel()).sin().reshape(3, *input_shape)
    probe = next((probe.to(parameter) for parameter in module.parameters()), probe)
    training, given = (copy.deepcopy(module).train(mode) for mode in (True, False))
    try:
        with torch.no_grad():
            used = probe.clone()
            whole, again, evaluated = training(used), training(probe.clone()), given(probe.clone())
            rows = torch.cat([training(row) for row in probe.clone().split(1)])
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ValueError(f"{name} {module} does not run on a batch of shape (B, {input_shape}): {error}") from error
    if not isinstance(whole, Tensor) or whole.ndim < 2 or len(whole) != 3:
        raise ValueError(f"{name} {module} must turn a batch of B rows into a tensor of B rows")
    if probe.is_meta:
        # a network that is being loaded has shapes but no values to compare
        return tuple(whole.shape[1:])
    if not torch.equal(used, probe):
        raise ValueError(
            f"{name} {module} works in place and would overwrite the outputs of the layer below or your data. "
            "Use inplace=False"
        )
    if not (torch.equal(whole, again) and torch.equal(whole, evaluated)):
        raise ValueError(
            f"{name} {module} is not deterministic: its outputs differ between two calls, or between training and "
            "evaluation mode. Use a deterministic module"
        )
    if whole.shape != rows.shape or not torch.allclose(whole, rows, atol=1e-5, equal_nan=True):
        raise ValueError(f"{name} {module} mixes the rows of a batch. It must treat each row independently")
    return tuple(whole.shape[1:])
