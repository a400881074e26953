"""Likelihoods p(y | f) of the targets given the outputs of a network.

All likelihoods define the same methods in the same order. Outputs f are (S, B, ...) and targets (B, ...). `log_prob` sums
over the outputs of each row, so it is (S, B).
"""

from inducing.nn.likelihoods.base import Likelihood
from inducing.nn.likelihoods.classes import Bernoulli, Categorical
from inducing.nn.likelihoods.counts import NegativeBinomial, Poisson
from inducing.nn.likelihoods.gaussian import Gaussian
from inducing.nn.likelihoods.heteroscedastic import HeteroscedasticGaussian
from inducing.nn.likelihoods.integers import integer_quantile
from inducing.nn.likelihoods.parameters import FIRST_VARIANCE, LOG_VARIANCE_SCALE
from inducing.nn.likelihoods.robust import HeteroscedasticStudentT, StudentT

__all__ = [
    "FIRST_VARIANCE",
    "LOG_VARIANCE_SCALE",
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "HeteroscedasticGaussian",
    "HeteroscedasticStudentT",
    "Likelihood",
    "NegativeBinomial",
    "Poisson",
    "StudentT",
    "integer_quantile",
]
