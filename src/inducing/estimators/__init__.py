"""scikit-learn estimators: arrays or tables in, predictions with error bars out."""

from inducing.estimators.classification import BNNClassifier, DeepGPClassifier
from inducing.estimators.regression import BNNRegressor, DeepGPRegressor

__all__ = ["BNNClassifier", "BNNRegressor", "DeepGPClassifier", "DeepGPRegressor"]
