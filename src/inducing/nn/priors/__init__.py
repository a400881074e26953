"""Priors over the weights of a layer."""

from inducing.nn.priors.base import Prior, PriorDensity, PriorModule, PriorSample, WeightLayout
from inducing.nn.priors.by_name import PRIORS, as_prior
from inducing.nn.priors.fixed import NealPrior, StandardPrior
from inducing.nn.priors.inverse_wishart import ChannelIWPrior, KroneckerIWPrior, SpatialIWPrior
from inducing.nn.priors.scale import ScalePrior

__all__ = [
    "PRIORS",
    "ChannelIWPrior",
    "KroneckerIWPrior",
    "NealPrior",
    "Prior",
    "PriorDensity",
    "PriorModule",
    "PriorSample",
    "ScalePrior",
    "SpatialIWPrior",
    "StandardPrior",
    "WeightLayout",
    "as_prior",
]
