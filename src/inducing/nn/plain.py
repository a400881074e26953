"""Plain modules between Bayesian layers: deterministic, without parameters, and blind to the other rows of a batch.

Those three are what makes the inducing points a faithful picture of the data: a module with parameters would be trained
without a prior, and one that mixes rows (BatchNorm) or draws noise (Dropout) would treat inducing points and data
apart.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from inducing.nn.draw import Function

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Folded(Function):
    """A plain module, run with the samples folded into the batch: (S, B, ...) -> (S B, ...) -> (S, B, ...)."""

    module: nn.Module

    def __call__(self, x: Tensor) -> Tensor:
        folded: Tensor = self.module(x.flatten(0, 1))
        return folded.unflatten(0, x.shape[:2])


def check_plain(module: nn.Module, name: str, input_shape: Shape) -> Shape:
    """Refuse a module that cannot stand between Bayesian layers, or return the shape of its outputs."""
    for part in module.modules():
        _refuse_by_kind(part, name)
    parameters = [parameter for parameter, _ in module.named_parameters()]
    if parameters:
        raise ValueError(
            f"{name} {module} has parameters ({', '.join(parameters)}): they would be trained without a prior. "
            "Use a Bayesian layer, inducing.Linear or inducing.Conv2d; inducing.InducingNorm() for normalisation; or a "
            "module without parameters"
        )
    return _refuse_by_behaviour(module, name, input_shape)


def _refuse_by_kind(module: nn.Module, name: str) -> None:
    if isinstance(module, _DropoutNd):
        raise ValueError(
            f"{name} {module} draws noise that has no place in the posterior, and inducing points and data would meet "
            "different noise. Remove it: the Bayesian layers regularise"
        )
    if isinstance(module, _BatchNorm):
        raise ValueError(
            f"{name} {module} mixes the rows of a batch, so a drawn network would not be a function, and training and "
            "test would differ. Use inducing.InducingNorm(), whose statistics come from the inducing points; without it "
            "NealPrior keeps the activations at a sensible scale"
        )


def _refuse_by_behaviour(module: nn.Module, name: str, input_shape: Shape) -> Shape:
    # a fixed ramp, the same on every machine and without touching the global random state
    probe = torch.linspace(-2.0, 2.0, 3 * torch.Size(input_shape).numel()).sin().reshape(3, *input_shape)
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
        # a network that is loaded: its shapes are wanted, and there are no values to compare
        return tuple(whole.shape[1:])
    if not torch.equal(used, probe):
        raise ValueError(
            f"{name} {module} works in place: it would write into the outputs of the layer below, or into your data. "
            "Use inplace=False"
        )
    if not (torch.equal(whole, again) and torch.equal(whole, evaluated)):
        raise ValueError(
            f"{name} {module} is not deterministic: two calls on the same rows, or training and evaluation mode, "
            "differ. Remove its noise"
        )
    if whole.shape != rows.shape or not torch.allclose(whole, rows, atol=1e-5, equal_nan=True):
        raise ValueError(f"{name} {module} mixes the rows of a batch; each row must be treated by itself")
    return tuple(whole.shape[1:])
