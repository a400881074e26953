"""What a network is made of: residual blocks, the order of its parts, and which of them can stand together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from inducing.nn.layers import Layer
from inducing.nn.normalisation import InducingNorm
from inducing.nn.posteriors import OptimalInducing


class Residual(nn.Module):
    """x -> shortcut(x) + layers(x).

    Arguments:
        layers: Bayesian layers, plain modules or further residual blocks.
        shortcut: A module or a list of modules on the other branch; the default is the identity.

    Example:
        >>> import inducing
        >>> from torch import nn
        >>> block = inducing.Residual(nn.ReLU(), inducing.Linear(50, 50))
    """

    def __init__(self, *layers: nn.Module, shortcut: nn.Module | Sequence[nn.Module] | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        other = [shortcut] if isinstance(shortcut, nn.Module) else shortcut
        self.shortcut = nn.ModuleList(other or [])


def parts(modules: nn.ModuleList, path: str = "layers") -> Iterator[tuple[str, nn.Module]]:
    """Walk over all modules, those inside residual blocks too, in the order in which they are drawn."""
    for index, module in enumerate(modules):
        name = f"{path}.{index}"
        if isinstance(module, Residual):
            yield from parts(module.layers, f"{name}.layers")
            yield from parts(module.shortcut, f"{name}.shortcut")
        elif isinstance(module, Layer | InducingNorm):
            yield name, module
        elif any(isinstance(part, Layer | Residual | InducingNorm) for part in module.modules()):
            raise ValueError(
                f"{name} {type(module).__name__} hides Bayesian layers; put them in the list one by one, "
                "or in an inducing.Residual"
            )
        else:
            yield name, module


def bayesian_layers(modules: nn.ModuleList) -> list[tuple[str, Layer]]:
    """The Bayesian layers with their names, in the order in which they are drawn."""
    return [(name, part) for name, part in parts(modules) if isinstance(part, Layer)]


def inducing_users(modules: nn.ModuleList) -> list[tuple[str, nn.Module]]:
    """What depends on the inducing points that come from below."""
    return [
        (name, part)
        for name, part in parts(modules)
        if isinstance(part, InducingNorm) or (isinstance(part, Layer) and part.needs_inducing)
    ]


def check_inducing_use(modules: nn.ModuleList, inducing_points: Tensor | None, num_inducing: int | None) -> None:
    """Refuse inducing points that nothing uses, and layers that miss them."""
    users = inducing_users(modules)
    given = not (inducing_points is None and num_inducing is None)
    if users and not given:
        name, user = users[0]
        what = f"has a {type(user.posterior_spec).__name__} posterior" if isinstance(user, Layer) else f"is an {user}"
        raise ValueError(
            f"{name} {what} and needs inducing points; pass rows of the training inputs, e.g. inducing_points=x[:100], "
            "or a number, num_inducing=100"
        )
    starters = any(layer.starts_from_rows for _, layer in bayesian_layers(modules))
    if given and not users and not starters:
        raise ValueError(
            "no layer uses the inducing points: none has a GlobalInducing posterior. Leave out inducing_points and "
            'num_inducing, or give a layer posterior="global"'
        )


def check_optimal(modules: nn.ModuleList, learn_inducing_locations: bool) -> None:
    """Refuse an optimal posterior away from the data."""
    optimal = [name for name, layer in bayesian_layers(modules) if isinstance(layer.posterior_spec, OptimalInducing)]
    if optimal and learn_inducing_locations:
        raise ValueError(
            f"{optimal[0]} has an OptimalInducing posterior, which is exact only with the inducing points at the data; "
            "pass learn_inducing_locations=False"
        )


def check_resampling(modules: nn.ModuleList) -> None:
    """Local reparameterisation is only valid where nothing that depends on propagated inducing points follows."""
    users = {name for name, _ in inducing_users(modules)}
    resampling: tuple[str, Layer] | None = None
    for name, part in parts(modules):
        if resampling is not None and name in users:
            below, layer = resampling
            raise ValueError(
                f"{below} {layer}: local reparameterisation draws new weights for every row, so inducing points and "
                f"data would go through different functions, and {name} above would learn from the wrong one. "
                "Use Factorised(local_reparameterisation=False) below a layer with inducing points"
            )
        if resampling is None and isinstance(part, Layer) and part.resamples:
            resampling = name, part
