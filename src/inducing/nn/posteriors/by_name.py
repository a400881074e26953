"""The names of the posteriors, and "A->B" for networks whose last layer has another posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from inducing.nn.by_name import lookup
from inducing.nn.posteriors.base import Posterior
from inducing.nn.posteriors.coupled import CoupledInducing
from inducing.nn.posteriors.factorised import Factorised
from inducing.nn.posteriors.inducing import GlobalInducing, LocalInducing
from inducing.nn.posteriors.optimal import OptimalInducing
from inducing.nn.posteriors.point import PointEstimate
from inducing.nn.posteriors.prior_only import PriorOnly
from inducing.nn.posteriors.whitened import DSVI

POSTERIORS: dict[str, type[Posterior]] = {
    "factorised": Factorised,
    "local": LocalInducing,
    "global": GlobalInducing,
    "optimal": OptimalInducing,
    "dsvi": DSVI,
    "coupled": CoupledInducing,
    "prior": PriorOnly,
    "point": PointEstimate,
}

# one posterior for all layers, "A->B" with B for the last layer, or a list with one for each layer
PosteriorOfLayers = Posterior | str | Sequence[Posterior | str]


P = TypeVar("P", bound=Posterior)


def as_posterior(posterior: Posterior | str | type, kind: type[P] = Posterior) -> P:  # type: ignore[assignment]
    """Return the posterior, or the one with this name and default settings. Raise an error if it is of another kind."""
    found = lookup("posterior", posterior, Posterior, POSTERIORS)
    if not isinstance(found, kind):
        names = ", ".join(f'"{name}"' for name, cls in POSTERIORS.items() if issubclass(cls, kind))
        raise ValueError(f"a {type(found).__name__} posterior is not over {kind.over}; use {names}")
    return found


def posteriors_for_layers(posterior: PosteriorOfLayers | type, num_layers: int) -> list[Posterior]:
    """List the posterior of each layer of a network. In "A->B", B is for the last layer and A for all others."""
    if isinstance(posterior, str) and "->" in posterior:
        lower, _, last = (part.strip() for part in posterior.partition("->"))
        return [as_posterior(lower)] * (num_layers - 1) + [as_posterior(last)]
    if isinstance(posterior, Posterior | str | type):
        return [as_posterior(posterior)] * num_layers
    if len(posterior) != num_layers:
        raise ValueError(f"got {len(posterior)} posteriors for {num_layers} layers. Pass one for each layer")
    return [as_posterior(each) for each in posterior]
