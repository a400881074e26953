"""Pipelines with intervals, and scores for model selection."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.preprocessing import StandardScaler

import inducing

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(5, 3, size=(60, 2))
Y = X[:, 0] + RANDOM.normal(size=60)
LABELS = np.where(X[:, 0] > 5, "yes", "no")
SMALL = {"max_steps": 10, "random_state": 0}


def test_intervals_survive_a_pipeline():
    pipeline = inducing.Pipeline([("scale", StandardScaler()), ("model", inducing.BNNRegressor([5], **SMALL))]).fit(
        X, Y
    )
    rows, model = pipeline[:-1].transform(X), pipeline[-1]
    assert np.array_equal(pipeline.predict_interval(X, 0.5), model.predict_interval(rows, 0.5))
    assert np.array_equal(pipeline.predict_quantiles(X, [0.1, 0.2]), model.predict_quantiles(rows, [0.1, 0.2]))
    assert np.array_equal(pipeline.sample_y(X, 2), model.sample_y(rows, 2))
    assert np.array_equal(pipeline.predict_distribution(X).mean, model.predict_distribution(rows).mean)
    alone = inducing.Pipeline([("model", model)])
    assert np.array_equal(alone.predict_interval(rows), model.predict_interval(rows))


def test_a_pipeline_has_only_what_its_last_step_has():
    pipeline = inducing.Pipeline([("scale", StandardScaler()), ("model", inducing.BNNClassifier([5], **SMALL))])
    assert hasattr(pipeline, "predict_distribution")
    assert not hasattr(pipeline, "predict_interval")


@pytest.mark.parametrize("score", [inducing.log_likelihood_score, inducing.crps_score])
def test_scores_choose_the_better_settings(score):
    pipeline = inducing.Pipeline([("scale", StandardScaler()), ("model", inducing.BNNRegressor([5], random_state=0))])
    search = GridSearchCV(pipeline, {"model__max_steps": [1, 100]}, scoring=score, cv=2).fit(X, Y)
    assert search.best_params_ == {"model__max_steps": 100}


def test_the_scores_are_those_of_predictions():
    model = inducing.BNNRegressor([5], **SMALL).fit(X, Y)
    predictive = model.predict_distribution(X)
    assert inducing.log_likelihood_score(model, X, Y) == inducing.metrics.log_likelihood(predictive, Y[:, None])
    assert inducing.crps_score(model, X, Y) == -inducing.metrics.crps(predictive, Y[:, None])
    classifier = inducing.BNNClassifier([5], **SMALL).fit(X, LABELS)
    probability = classifier.predict_proba(X)[np.arange(60), (LABELS == "yes").astype(int)]
    assert inducing.log_likelihood_score(classifier, X, LABELS) == pytest.approx(np.log(probability).mean())
    assert np.isfinite(cross_val_score(classifier, X, LABELS, scoring=inducing.log_likelihood_score, cv=2)).all()
    with pytest.raises(ValueError, match="log_likelihood_score for classes"):
        inducing.crps_score(classifier, X, LABELS)


@pytest.mark.parametrize("label", ["aa", "zz"])
def test_labels_that_the_fit_has_not_seen_are_refused(label):
    x = np.random.default_rng(0).normal(size=(20, 2))
    model = inducing.BNNClassifier([3], max_steps=2, random_state=0).fit(x, np.where(x[:, 0] > 0, "b", "c"))
    with pytest.raises(ValueError, match=f"y has the label '{label}', but the fitted classes are"):
        inducing.log_likelihood_score(model, x[:2], ["b", label])
