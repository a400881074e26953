"""Checks that the parts of a network are compatible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inducing.errors import FactorisationError
from inducing.linalg.noise import seeded
from inducing.nn.context import Shape
from inducing.nn.layers.gp import GPLayer
from inducing.nn.layers.parts import Parts
from inducing.nn.layers.residual import Residual
from inducing.nn.posteriors.optimal import OptimalInducing

if TYPE_CHECKING:
    from inducing.nn.network import Network


def check_inducing_use(parts: Parts, inducing_points: Tensor | None, num_inducing: int | None) -> None:
    """Raise an error if no layer uses the inducing points, or if layers need them and there are none."""
    users = parts.inducing_users()
    given = not (inducing_points is None and num_inducing is None)
    if users and not given:
        name, user = users[0]
        raise ValueError(
            f"{name} {user.needs_inducing_because} and needs inducing points. Pass rows of the training inputs, e.g. "
            "inducing_points=x[:100], or a number, num_inducing=100"
        )
    if given and not users and not any(layer.starts_from_rows for _, layer in parts.bayesian_layers()):
        raise ValueError(
            "no layer uses the inducing points: none has a GlobalInducing posterior. Leave out inducing_points and "
            'num_inducing, or give a layer posterior="global"'
        )


def check_optimal(parts: Parts, learn_inducing_locations: bool) -> None:
    """Raise an error if a layer has an optimal posterior and the inducing points are learned."""
    optimal = [name for name, layer in parts.bayesian_layers() if isinstance(layer.posterior_spec, OptimalInducing)]
    if optimal and learn_inducing_locations:
        raise ValueError(
            f"{optimal[0]} has an OptimalInducing posterior, which is exact only if the inducing points are the data. "
            "Pass learn_inducing_locations=False"
        )


def check_other_size(network: Network, inducing_shape: Shape) -> None:
    """Raise an error if a network that was built for the size of its inducing images does not run on its inputs."""
    if network.optimal_last is not None:
        raise ValueError(
            f"the last layer has an OptimalInducing posterior, which is exact only if the inducing points are the data, but "
            f"the inducing images have shape {inducing_shape}, the inputs {network.input_shape}"
        )
    inputs = torch.zeros(1, *network.input_shape, dtype=network.dtype, device=network.device)
    if inputs.is_meta:
        # a network that is being loaded has shapes but no values
        return
    try:
        with torch.no_grad():
            outputs = network.draw(1, seeded(0, "other size"))(inputs)
    except FactorisationError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ValueError(
            f"inducing images of shape {inducing_shape} need a network that also runs on inputs of shape "
            f"{network.input_shape}, with global pooling (torch.nn.AdaptiveAvgPool2d) before a linear layer: {error}"
        ) from error
    if tuple(outputs.shape[2:]) != network.output_shape:
        raise ValueError(
            f"the outputs have shape {network.output_shape} for inducing images of shape {inducing_shape}, but "
            f"{tuple(outputs.shape[2:])} for inputs of shape {network.input_shape}. Use global pooling, "
            "torch.nn.AdaptiveAvgPool2d, or inducing images of the same size"
        )


def check_conditionals(parts: Parts) -> None:
    """Raise an error if a layer other than the last module of the network has a tight conditional."""
    for name, layer in parts.bayesian_layers():
        if isinstance(layer, GPLayer) and layer.conditional == "tight" and layer is not parts[-1]:
            raise ValueError(
                f'{name} has conditional="tight", but is not the last module. Its values must be the means of the '
                'likelihood, else the optimal q(f | u) has no closed form. Use conditional="prior"'
            )


def check_resampling(parts: Parts) -> None:
    """Raise an error if a layer with local reparameterisation is below one that depends on the inducing points."""
    _find_resampling(parts, "layers", None)


def _find_resampling(parts: Parts, name: str, below: str | None) -> str | None:
    """Return the description of a layer with local reparameterisation in these parts or below them, if there is one."""
    for part_name, part in parts.named_parts(name):
        if isinstance(part, Residual):
            # the branches are beside each other
            body = _find_resampling(part.layers, f"{part_name}.layers", below)
            below = _find_resampling(part.shortcut, f"{part_name}.shortcut", below) or body
        elif below is not None and part.needs_inducing:
            raise ValueError(
                f"{below}: local reparameterisation samples new weights for every row, so inducing points and "
                f"data would pass through different functions below {part_name}. Use Factorised()"
            )
        elif below is None and part.resamples:
            below = f"{part_name} {part}"
    return below
