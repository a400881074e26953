"""Networks and their parts, and the base classes for extensions."""

from inducing.linalg.precision import Dense, Precision, ScaledIdentity
from inducing.linalg.regression import WeightSample
from inducing.nn.context import BuildContext, DrawContext
from inducing.nn.density import LayerDensity, LogDensity
from inducing.nn.draw import Draw, Function, Variables
from inducing.nn.kernels import Kernel
from inducing.nn.layers.base import Layer
from inducing.nn.likelihoods import Likelihood
from inducing.nn.posteriors.base import (
    Posterior,
    ValueContext,
    ValueModule,
    ValuePosterior,
    ValuePrior,
    ValueSample,
    WeightContext,
    WeightModule,
    WeightPosterior,
)
from inducing.nn.priors import Prior, PriorDensity, PriorModule, PriorSample, WeightLayout

__all__ = [
    "BuildContext",
    "Dense",
    "Draw",
    "DrawContext",
    "Function",
    "Kernel",
    "Layer",
    "LayerDensity",
    "Likelihood",
    "LogDensity",
    "Posterior",
    "Precision",
    "Prior",
    "PriorDensity",
    "PriorModule",
    "PriorSample",
    "ScaledIdentity",
    "ValueContext",
    "ValueModule",
    "ValuePosterior",
    "ValuePrior",
    "ValueSample",
    "Variables",
    "WeightContext",
    "WeightLayout",
    "WeightModule",
    "WeightPosterior",
    "WeightSample",
]
