"""Bayesian neural networks and deep Gaussian processes whose posteriors are correlated across layers by inducing points."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# before torch, since it decides how torch's threads wait
from inducing import threads  # noqa: F401

# isort: split
from inducing import data, plots
from inducing.data.standardise import Standardiser
from inducing.errors import (
    CheckpointError,
    CheckpointWarning,
    ConvergenceWarning,
    DataWarning,
    DivergenceError,
    FactorisationError,
    JitterWarning,
    RankError,
    RollBackWarning,
    SavedModelError,
)
from inducing.inference import recipes
from inducing.inference.annealing import Evidence, evidence
from inducing.inference.callbacks import JSONLog, TensorBoard
from inducing.inference.held_out import HeldOut
from inducing.inference.history import History, Record
from inducing.inference.hmc.diagnostics import Diagnostics
from inducing.inference.hmc.sampler import HMCSamples, hmc
from inducing.inference.importance import ImportanceWeightedBound
from inducing.inference.inducing_points import choose_inducing_points
from inducing.inference.mixtures import Mixture, MixtureELBO
from inducing.inference.objective import ELBO, ELBOTerms, evaluate
from inducing.inference.parallel import ranks as distributed
from inducing.inference.recipes import Recipe
from inducing.inference.training import fit
from inducing.inference.updating import UpdatedNetwork, update
from inducing.nn import kernels, models
from inducing.nn.conversion import bayesianize
from inducing.nn.draw import Draw, FunctionSamples, NetworkDraw
from inducing.nn.layers import Linear, Residual
from inducing.nn.layers.conv2d import Conv2d
from inducing.nn.layers.deterministic import Deterministic
from inducing.nn.layers.gp import GPLayer
from inducing.nn.layers.normalisation import InducingNorm
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
from inducing.nn.posteriors import (
    DSVI,
    CoupledInducing,
    Factorised,
    GlobalInducing,
    LocalInducing,
    OptimalInducing,
    PointEstimate,
    PriorOnly,
)
from inducing.nn.priors import NealPrior, ScalePrior, StandardPrior
from inducing.nn.priors.inverse_wishart import ChannelIWPrior, KroneckerIWPrior, SpatialIWPrior
from inducing.prediction import metrics
from inducing.prediction.predictive import Predictive, predict
from inducing.saving import load, register, register_later, save

if TYPE_CHECKING:
    from inducing.estimators import (
        AutoClassifier,
        AutoRegressor,
        BNNClassifier,
        BNNRegressor,
        DeepGPClassifier,
        DeepGPRegressor,
        Pipeline,
        TreeBNNClassifier,
        TreeBNNRegressor,
        crps_score,
        log_likelihood_score,
    )
    from inducing.tables.errors import TableError, TableWarning
    from inducing.tables.reading import read_table
    from inducing.tables.schema import Schema

_SAVED = (
    "AutoClassifier",
    "AutoRegressor",
    "BNNClassifier",
    "BNNRegressor",
    "DeepGPClassifier",
    "DeepGPRegressor",
    "TreeBNNClassifier",
    "TreeBNNRegressor",
)
# imported on first use, since they need optional packages that are slow to import
_LAZY = {
    "inducing.tables.errors": ("TableError", "TableWarning"),
    "inducing.tables.reading": ("read_table",),
    "inducing.tables.schema": ("Schema",),
    "inducing.estimators": _SAVED,
    "inducing.estimators.pipeline": ("Pipeline", "crps_score", "log_likelihood_score"),
}
register_later("inducing.estimators", *_SAVED)

__all__ = [
    "DSVI",
    "ELBO",
    "AutoClassifier",
    "AutoRegressor",
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
    "DataWarning",
    "DeepGPClassifier",
    "DeepGPRegressor",
    "Deterministic",
    "Diagnostics",
    "DivergenceError",
    "Draw",
    "ELBOTerms",
    "Evidence",
    "FactorisationError",
    "Factorised",
    "FunctionSamples",
    "GPLayer",
    "Gaussian",
    "GlobalInducing",
    "HMCSamples",
    "HeldOut",
    "HeteroscedasticGaussian",
    "HeteroscedasticStudentT",
    "History",
    "ImportanceWeightedBound",
    "InducingNorm",
    "JSONLog",
    "JitterWarning",
    "KroneckerIWPrior",
    "Linear",
    "LocalInducing",
    "Mixture",
    "MixtureELBO",
    "NealPrior",
    "NegativeBinomial",
    "Network",
    "NetworkDraw",
    "OptimalInducing",
    "Pipeline",
    "PointEstimate",
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
    "TreeBNNClassifier",
    "TreeBNNRegressor",
    "UpdatedNetwork",
    "bayesianize",
    "choose_inducing_points",
    "crps_score",
    "data",
    "distributed",
    "evaluate",
    "evidence",
    "fit",
    "hmc",
    "kernels",
    "load",
    "log_likelihood_score",
    "metrics",
    "models",
    "plots",
    "predict",
    "read_table",
    "recipes",
    "register",
    "save",
    "update",
]


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        for module, names in _LAZY.items():
            if name in names or f"inducing.{name}" == module:
                found = import_module(module)
                return getattr(found, name) if name in names else found
        raise AttributeError(f"module 'inducing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
