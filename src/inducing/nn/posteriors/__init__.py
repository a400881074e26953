"""Approximate posteriors over the weights of a layer, or over the values of a Gaussian process."""

from inducing.nn.posteriors.base import DEFAULT_NUM_INDUCING, Posterior
from inducing.nn.posteriors.by_name import POSTERIORS, PosteriorOfLayers, as_posterior, posteriors_for_layers
from inducing.nn.posteriors.coupled import CoupledInducing
from inducing.nn.posteriors.factorised import Factorised
from inducing.nn.posteriors.inducing import GlobalInducing, LocalInducing
from inducing.nn.posteriors.optimal import OptimalInducing
from inducing.nn.posteriors.point import PointEstimate
from inducing.nn.posteriors.prior_only import PriorOnly
from inducing.nn.posteriors.whitened import DSVI

__all__ = [
    "DEFAULT_NUM_INDUCING",
    "DSVI",
    "POSTERIORS",
    "CoupledInducing",
    "Factorised",
    "GlobalInducing",
    "LocalInducing",
    "OptimalInducing",
    "PointEstimate",
    "Posterior",
    "PosteriorOfLayers",
    "PriorOnly",
    "as_posterior",
    "posteriors_for_layers",
]
