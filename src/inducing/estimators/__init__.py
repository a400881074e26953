"""scikit-learn estimators: arrays or tables in, predictions with error bars out."""

from inducing.extras import require

require("sklearn")

from inducing.estimators.auto import AutoClassifier, AutoRegressor  # noqa: E402
from inducing.estimators.classification import BNNClassifier, DeepGPClassifier  # noqa: E402
from inducing.estimators.pipeline import Pipeline, crps_score, log_likelihood_score  # noqa: E402
from inducing.estimators.regression import BNNRegressor, DeepGPRegressor  # noqa: E402
from inducing.estimators.stacking import TreeBNNClassifier, TreeBNNRegressor  # noqa: E402

__all__ = [
    "AutoClassifier",
    "AutoRegressor",
    "BNNClassifier",
    "BNNRegressor",
    "DeepGPClassifier",
    "DeepGPRegressor",
    "Pipeline",
    "TreeBNNClassifier",
    "TreeBNNRegressor",
    "crps_score",
    "log_likelihood_score",
]
