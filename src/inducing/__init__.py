"""Bayesian neural networks and deep Gaussian processes whose posteriors are correlated across layers by inducing points."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# before torch, since it decides how torch's threads wait
from inducing import threads  # noqa: F401

# isort: split
from inducing import data
from inducing.data.standardise import Standardiser
from inducing.inference import distributed, recipes
from inducing.inference.callbacks import JSONLog, TensorBoard
from inducing.inference.checkpoint import CheckpointError, CheckpointWarning
from inducing.inference.diagnostics import Diagnostics
from inducing.inference.distributed import RankError
from inducing.inference.history import History, Record
from inducing.inference.hmc import ConvergenceWarning, HMCSamples, hmc
from inducing.inference.inducing_points import choose_inducing_points
from inducing.inference.objective import ELBO, ELBOTerms, evaluate
from inducing.inference.recipes import Recipe
from inducing.inference.state import DivergenceError, RollBackWarning
from inducing.inference.training import fit
from inducing.linalg.cholesky import FactorisationError, JitterWarning
from inducing.nn import kernels, models
from inducing.nn.convolution import Conv2d
from inducing.nn.draw import Draw, FunctionSamples, NetworkDraw
from inducing.nn.gp import GPLayer
from inducing.nn.inverse_wishart import ChannelIWPrior, KroneckerIWPrior, SpatialIWPrior
from inducing.nn.layers import Linear
from inducing.nn.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from inducing.nn.network import Network
from inducing.nn.normalisation import InducingNorm
from inducing.nn.posteriors import (
    DSVI,
    CoupledInducing,
    Factorised,
    GlobalInducing,
    LocalInducing,
    OptimalInducing,
    PriorOnly,
)
from inducing.nn.priors import NealPrior, ScalePrior, StandardPrior
from inducing.nn.structure import Residual
from inducing.prediction import metrics
from inducing.prediction.predictive import Predictive, predict
from inducing.saving import SavedModelError, load, register_by, save

if TYPE_CHECKING:
    from inducing.data.tables import Schema, TableError, TableWarning, read_table
    from inducing.estimators import BNNClassifier, BNNRegressor, DeepGPClassifier, DeepGPRegressor

# scikit-learn and pandas take as long to import as torch, so what needs them is imported when it is first asked for
_LATER = {
    "inducing.data.tables": ("Schema", "TableError", "TableWarning", "read_table"),
    "inducing.estimators": ("BNNClassifier", "BNNRegressor", "DeepGPClassifier", "DeepGPRegressor"),
}
register_by("inducing.estimators")

__all__ = [
    "DSVI",
    "ELBO",
    "BNNClassifier",
    "BNNRegressor",
    "Bernoulli",
    "Categorical",
    "ChannelIWPrior",
    "CheckpointError",
    "CheckpointWarning",
    "Conv2d",
    "ConvergenceWarning",
    "CoupledInducing",
    "DeepGPClassifier",
    "DeepGPRegressor",
    "Diagnostics",
    "DivergenceError",
    "Draw",
    "ELBOTerms",
    "FactorisationError",
    "Factorised",
    "FunctionSamples",
    "GPLayer",
    "Gaussian",
    "GlobalInducing",
    "HMCSamples",
    "HeteroscedasticGaussian",
    "HeteroscedasticStudentT",
    "History",
    "InducingNorm",
    "JSONLog",
    "JitterWarning",
    "KroneckerIWPrior",
    "Linear",
    "LocalInducing",
    "NealPrior",
    "NegativeBinomial",
    "Network",
    "NetworkDraw",
    "OptimalInducing",
    "Poisson",
    "Predictive",
    "PriorOnly",
    "RankError",
    "Recipe",
    "Record",
    "Residual",
    "RollBackWarning",
    "SavedModelError",
    "ScalePrior",
    "Schema",
    "SpatialIWPrior",
    "StandardPrior",
    "Standardiser",
    "StudentT",
    "TableError",
    "TableWarning",
    "TensorBoard",
    "choose_inducing_points",
    "data",
    "distributed",
    "evaluate",
    "fit",
    "hmc",
    "kernels",
    "load",
    "metrics",
    "models",
    "predict",
    "read_table",
    "recipes",
    "save",
]


if not TYPE_CHECKING:  # type checkers would take any name for granted

    def __getattr__(name: str) -> Any:
        if name == "estimators":
            return import_module("inducing.estimators")
        for module, names in _LATER.items():
            if name in names:
                return getattr(import_module(module), name)
        raise AttributeError(f"module 'inducing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
