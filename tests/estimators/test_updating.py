"""New rows without a new fit."""

import numpy as np
import pytest

import inducing

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(3.0, 2.0, (60, 2))
Y = 100 + 20 * X[:, 0] + RANDOM.normal(size=60)
SMALL = {"max_steps": 50, "random_state": 0}


@pytest.mark.parametrize(
    "make",
    [lambda: inducing.BNNRegressor(hidden=[10], **SMALL), lambda: inducing.DeepGPRegressor(num_layers=1, **SMALL)],
)
def test_an_update_helps_where_the_new_rows_are(make):
    low = X[:, 0] < 3
    model = make().fit(X[low], Y[low])
    before, spread = model.predict(X[~low], return_std=True)
    model.update(X[~low][::2], Y[~low][::2]).update(X[~low][1::4], Y[~low][1::4])
    after, narrower = model.predict(X[~low], return_std=True)
    errors = [np.abs(found - Y[~low]).mean() for found in (before, after)]
    assert errors[1] < 0.7 * errors[0]
    assert narrower.mean() < spread.mean()
    assert model.fit(X, Y).predictor is model.network_


def test_what_cannot_be_updated(tmp_path):
    model = inducing.BNNRegressor(hidden=[5], max_steps=2, random_state=0).fit(X, Y).update(X[:2], Y[:2])
    with pytest.raises(ValueError, match="updated estimator"):
        inducing.save(model, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="inconsistent"):
        model.update(X[:2], Y[:3])
    classifier = inducing.BNNClassifier(hidden=[5], max_steps=2, random_state=0).fit(X, Y > 100)
    with pytest.raises(TypeError, match="Categorical"):
        classifier.update(X[:2], Y[:2] > 100)
