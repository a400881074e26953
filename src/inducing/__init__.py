"""Bayesian neural networks with global inducing points: posteriors that are correlated across layers."""

from inducing import data
from inducing.inference.objective import ELBO, ELBOTerms
from inducing.inference.training import DivergenceError, History, Record, fit
from inducing.linalg.cholesky import FactorisationError, JitterWarning
from inducing.nn import models
from inducing.nn.draw import Draw, FunctionSamples, NetworkDraw
from inducing.nn.layers import Linear
from inducing.nn.likelihoods import Categorical, Gaussian
from inducing.nn.network import Network, Residual
from inducing.nn.posteriors import Factorised, GlobalInducing, LocalInducing, PriorOnly
from inducing.nn.priors import NealPrior, ScalePrior, StandardPrior
from inducing.prediction import metrics
from inducing.prediction.predictive import Predictive, predict

__all__ = [
    "ELBO",
    "Categorical",
    "DivergenceError",
    "Draw",
    "ELBOTerms",
    "FactorisationError",
    "Factorised",
    "FunctionSamples",
    "Gaussian",
    "GlobalInducing",
    "History",
    "JitterWarning",
    "Linear",
    "LocalInducing",
    "NealPrior",
    "Network",
    "NetworkDraw",
    "Predictive",
    "PriorOnly",
    "Record",
    "Residual",
    "ScalePrior",
    "StandardPrior",
    "data",
    "fit",
    "metrics",
    "models",
    "predict",
]
