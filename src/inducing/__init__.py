"""Bayesian neural networks with global inducing points: posteriors that are correlated across layers."""

from inducing.inference.objective import ELBO, ELBOTerms
from inducing.linalg.cholesky import FactorisationError, JitterWarning
from inducing.nn import models
from inducing.nn.draw import Draw, FunctionSamples, NetworkDraw
from inducing.nn.layers import Linear
from inducing.nn.likelihoods import Categorical, Gaussian
from inducing.nn.network import Network, Residual
from inducing.nn.posteriors import Factorised, GlobalInducing, LocalInducing, PriorOnly
from inducing.nn.priors import NealPrior, ScalePrior, StandardPrior
