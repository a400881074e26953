"""scikit-learn's own checks: a quick part with few steps, and all of them at 200 steps, without exemptions."""

import numpy as np
import pytest
import sklearn
from packaging.version import Version
from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_estimator,
    estimator_checks_generator,
)

import inducing

ESTIMATORS = [inducing.BNNRegressor, inducing.BNNClassifier, inducing.DeepGPRegressor, inducing.DeepGPClassifier]
# what is asked of data, names and messages; those that fit often or to convergence are left to the slow test
QUICK = [
    "check_complex_data",
    "check_dict_unchanged",
    "check_estimator_cloneable",
    "check_estimators_empty_data_messages",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_estimators_unfitted",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_score_takes_y",
    "check_methods_subset_invariance",
    "check_n_features_in_after_fitting",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_sample_weights_shape",
]
if Version(sklearn.__version__) >= Version("1.9"):
    QUICK.append("check_all_zero_sample_weights_error")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_quick_checks(estimator):
    done = set()
    for each, check in estimator_checks_generator(estimator(max_steps=2, num_inducing=10, n_samples=10)):
        if check.func.__name__ in QUICK:
            check(each)
            done.add(check.func.__name__)
    assert done == set(QUICK)
    check_dataframe_column_names_consistency(estimator.__name__, each)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_all_checks(estimator):
    each = estimator(max_steps=200)
    tags = get_tags(each)
    scored = tags.classifier_tags if tags.classifier_tags is not None else tags.regressor_tags
    assert not scored.poor_score
    assert not tags.non_deterministic
    # none is expected to fail
    results = check_estimator(each, on_skip=None)
    assert len(results) > 50
    assert {result["status"] for result in results} <= {"passed", "skipped"}


def test_a_grid_search_over_a_pipeline():
    X, y = make_regression(60, 3, noise=1.0, random_state=0)
    model = make_pipeline(PolynomialFeatures(2), inducing.BNNRegressor(max_steps=5, num_inducing=10, random_state=0))
    search = GridSearchCV(model, {"bnnregressor__hidden": [(5,), (10, 10)]}, cv=2).fit(X, y)
    assert search.predict(X).shape == (60,)
    assert search.best_params_["bnnregressor__hidden"] in [(5,), (10, 10)]


def test_cross_validation_of_classes():
    X, y = load_iris(return_X_y=True)
    model = inducing.BNNClassifier(max_steps=60, hidden=(10,), num_inducing=20, random_state=0)
    scores = cross_val_score(model, X, y, cv=2)
    assert scores.mean() > 0.9


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_clone_has_equal_parameters_and_nothing_fitted(estimator):
    posterior = inducing.GlobalInducing(precision="full")
    model = estimator(posterior=posterior, recipe=inducing.Recipe(num_steps=3), random_state=3)
    again = clone(model.fit(np.eye(6), np.arange(6) % 2))
    assert again.get_params() == model.get_params()
    assert not hasattr(again, "network_")
