"""The names of the priors."""

from __future__ import annotations

from inducing.nn.by_name import lookup
from inducing.nn.priors.base import Prior
from inducing.nn.priors.fixed import NealPrior, StandardPrior
from inducing.nn.priors.inverse_wishart import ChannelIWPrior, KroneckerIWPrior, SpatialIWPrior
from inducing.nn.priors.scale import ScalePrior

PRIORS: dict[str, type[Prior]] = {
    "neal": NealPrior,
    "standard": StandardPrior,
    "scale": ScalePrior,
    "spatial-iw": SpatialIWPrior,
    "channel-iw": ChannelIWPrior,
    "kronecker-iw": KroneckerIWPrior,
}


def as_prior(prior: Prior | str) -> Prior:
    """Return the prior, or the prior with this name and default settings."""
    return lookup("prior", prior, Prior, PRIORS)
