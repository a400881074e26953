"""The inducing points that regressors choose, and when the last layer is exact."""

import numpy as np
import pytest

import inducing
from tests.estimators.examples import X, Y


def test_the_number_of_inducing_points_is_that_of_distinct_rows():
    model = inducing.BNNRegressor(num_inducing=50, max_steps=1).fit(np.tile(X[:10], (4, 1)), np.tile(Y[:10], 4))
    assert model.network_.num_inducing == 10


def posterior(model):
    return type(model.network_.last_layer.posterior_spec).__name__


def test_few_rows_are_all_inducing_points_of_an_exact_last_layer(monkeypatch):
    twice = np.r_[X, X[:5]], np.r_[Y, Y[:5]]
    model = inducing.BNNRegressor(max_steps=1).fit(*twice)
    assert posterior(model) == "OptimalInducing"
    assert model.network_.num_inducing == 60
    assert sorted(model.network_.last_layer.posterior.row_weights.tolist()) == [1.0] * 55 + [2.0] * 5
    for changes in ({"likelihood": "student-t"}, {"num_inducing": 20}, {"posterior": "global"}, {"warm_start": True}):
        assert posterior(inducing.BNNRegressor(**changes, max_steps=1).fit(*twice)) == "GlobalInducing", changes
    assert posterior(inducing.DeepGPRegressor(max_steps=1).fit(*twice)) == "GlobalInducing"
    monkeypatch.setattr(inducing.BNNRegressor, "exact_rows", 59)
    assert posterior(inducing.BNNRegressor(max_steps=1).fit(*twice)) == "GlobalInducing"


def test_an_exact_last_layer_by_name_and_posteriors_in_an_array():
    for asked in ("global->optimal", "factorised->optimal", ("global", "global", inducing.OptimalInducing())):
        assert posterior(inducing.BNNRegressor(posterior=asked, max_steps=1).fit(X, Y)) == "OptimalInducing"
    deep = inducing.DeepGPRegressor(posterior="global->optimal", max_steps=1).fit(X, Y)
    assert posterior(deep) == "OptimalInducing"
    model = inducing.BNNRegressor((5,), posterior=np.array(["local", "global"]), max_steps=1).fit(X, Y)
    assert posterior(model) == "GlobalInducing"
    noisy = ("global", "global", inducing.OptimalInducing(heteroscedastic=True))
    assert "Heteroscedastic" in inducing.BNNRegressor(posterior=noisy, max_steps=1).fit(X, Y).built
    for asked, likelihood in (
        ("global->optimal", "student-t"),
        ("global->optimal", "heteroscedastic"),
        (noisy, "gaussian"),
    ):
        with pytest.raises(ValueError, match=r"OptimalInducing.* does not support the likelihood"):
            inducing.BNNRegressor(posterior=asked, likelihood=likelihood, max_steps=1).fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "built"),
    [
        (
            {},
            "HeteroscedasticGaussian likelihood, 60 global inducing points: all distinct rows, with an exact last layer",
        ),
        ({"likelihood": "student-t", "num_inducing": 7}, "StudentT likelihood, 7 global inducing points: learned"),
        ({"posterior": "factorised", "likelihood": "gaussian"}, "Gaussian likelihood, no global inducing points"),
    ],
)
def test_what_was_built_is_told(settings, built):
    assert inducing.BNNRegressor(max_steps=1, **settings).fit(X, Y).built == built


def test_an_exact_last_layer_cannot_go_on():
    model = inducing.BNNRegressor(max_steps=1).fit(X, Y).set_params(warm_start=True)
    with pytest.raises(ValueError, match="warm_start=True before the first fit"):
        model.fit(X, Y)
