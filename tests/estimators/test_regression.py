"""Regressors: shapes, scales, what is the same and what is not, messages."""

import numpy as np
import pandas as pd
import pytest
import torch

import inducing
from inducing.estimators import architectures
from tests.estimators.examples import BOTH, REGRESSORS, SMALL, X, Y


@pytest.mark.parametrize("regressor", REGRESSORS)
def test_the_seed_decides_everything(regressor):
    quick = {**SMALL, "max_steps": 3}
    state = torch.get_rng_state()
    first, again = (regressor(**quick).fit(X, Y).predict(X) for _ in range(2))
    assert np.array_equal(first, again)
    assert torch.equal(state, torch.get_rng_state())
    assert not np.array_equal(first, regressor(**{**quick, "random_state": 1}).fit(X, Y).predict(X))


@pytest.mark.parametrize(
    "likelihood", ["auto", "gaussian", "heteroscedastic-student-t", "student-t", "poisson", "negative-binomial"]
)
@pytest.mark.parametrize("regressor", REGRESSORS)
def test_likelihoods(regressor, likelihood):
    counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(X)))
    model = regressor(**SMALL | {"likelihood": likelihood}).fit(X, counts)
    low, high = model.predict_interval(X, 0.9)
    assert (low <= high).all()
    assert 0.7 < ((low <= counts) & (counts <= high)).mean() <= 1
    if model.likelihood in ("poisson", "negative-binomial"):
        assert np.array_equal(low, np.round(low))
        assert (model.predict(X) > 0).all()
        samples = model.sample_y(X, 3)
        assert np.array_equal(samples, np.round(samples))


def test_counts_are_checked_before_anything_is_made_of_them():
    with pytest.raises(ValueError, match="counts"):
        inducing.BNNRegressor(likelihood="poisson", max_steps=1).fit(X, Y - 200)


@pytest.mark.parametrize("number", [15, "auto"])
def test_whole_weights_are_repeated_rows(number):
    weights = np.arange(60) % 3
    quick = {**SMALL, "num_inducing": number, "max_steps": 10}
    weighted = inducing.BNNRegressor(**quick).fit(X, Y, sample_weight=weights)
    repeated = inducing.BNNRegressor(**quick).fit(X.repeat(weights, 0), Y.repeat(weights))
    shuffled = np.random.default_rng(1).permutation(np.arange(60).repeat(weights))
    another_order = inducing.BNNRegressor(**quick).fit(X[shuffled], Y[shuffled])
    for other in (repeated, another_order):
        assert np.array_equal(weighted.predict(X), other.predict(X))
        assert weighted.elbo_ == other.elbo_
    assert not np.allclose(weighted.predict(X), inducing.BNNRegressor(**quick).fit(X, Y).predict(X), rtol=1e-3)


def test_light_rows_are_told_once():
    with pytest.warns(UserWarning, match="weights of 60 rows sum to 1") as told:
        inducing.BNNRegressor(max_steps=1).fit(X, Y, sample_weight=np.full(60, 1 / 60))
    (warning,) = told
    assert warning.filename == __file__


@pytest.mark.parametrize(
    ("settings", "likelihood"),
    [
        ({}, "HeteroscedasticStudentT"),
        ({"likelihood": "gaussian"}, "Gaussian"),
        ({"posterior": "global->optimal"}, "Gaussian"),
    ],
)
def test_noise_of_deep_processes_depends_on_the_inputs(settings, likelihood):
    model = inducing.DeepGPRegressor(max_steps=1, **settings).fit(X, Y)
    assert type(model.likelihood_).__name__ == likelihood


@pytest.mark.parametrize("regressor", REGRESSORS)
def test_noise_does_not_run_away_from_the_data(regressor):
    """Its standard deviation is a mean over draws; of exponentials a few draws far from the data would decide it."""
    model = regressor(max_steps=60, random_state=0).fit(X[:40], Y[:40])
    far = X.mean(0) + 10 * (X - X.mean(0))
    _, few = model.predict(far, return_std=True)
    _, many = model.set_params(n_samples=1000).predict(far, return_std=True)
    assert few.max() < 30 * Y.std()
    assert (few / many > 0.5).all()
    assert (few / many < 2).all()


@pytest.mark.parametrize(("rows", "weight"), [(10, 0.1), (875, 0.5)])
def test_the_weight_of_the_kl_grows_with_the_rows(rows, weight):
    """Up to 1,000 rows; with more, held-out rows choose it."""
    assert inducing.BNNRegressor()._make_recipe(rows, rows).temperature == weight
    assert inducing.BNNClassifier()._make_recipe(rows, rows).temperature == 0.1
    assert inducing.DeepGPRegressor()._make_recipe(rows, rows).temperature == 1.0


def test_a_warm_start_goes_on():
    quick = {**SMALL, "hidden": (10,), "max_steps": 10}
    model = inducing.BNNRegressor(**quick, warm_start=True).fit(X, Y)
    first = model.history_[-1].objective
    model.fit(X, Y)
    assert model.history_[-1].objective > first
    cold = inducing.BNNRegressor(**quick).fit(X, Y)
    assert cold.fit(X, Y).history_[-1].objective == pytest.approx(first)
    with pytest.raises(ValueError, match="y has 2 columns, but the model was fitted to 1"):
        model.fit(X, BOTH)
    with pytest.raises(ValueError, match="X has 1 features, but BNNRegressor is expecting 2"):
        model.fit(X[:, :1], Y)


def test_training_stops_when_it_is_at_rest():
    model = inducing.BNNRegressor(hidden=(), patience=20, max_steps=3000, random_state=0).fit(X, Y)
    assert len(model.history_) < 3000


def test_a_table_keeps_its_names_and_its_categories():
    table = pd.DataFrame({"size": X[:, 0], "colour": np.where(X[:, 1] > 3, "red", "blue")})
    quick = {**SMALL, "max_steps": 2}
    model = inducing.BNNRegressor(**quick).fit(table, Y)
    assert model.feature_names_in_.tolist() == ["size", "colour"]
    assert model.n_features_in_ == 2
    assert model.schema_.encoded_names == ("size", "colour=blue", "colour=red")
    mean = model.predict(table)
    with pytest.warns(inducing.TableWarning, match="'colour': 60 rows"):
        model.predict(table.assign(colour="Red"))
    with pytest.warns(inducing.TableWarning, match="matched by name"):
        assert np.array_equal(model.predict(table[["colour", "size"]]), mean)
    with pytest.raises(inducing.TableError, match="'colour' missing"):
        model.predict(table[["size"]])
    with pytest.raises(TypeError, match="DataFrame"):
        model.predict(X)
    numbers = pd.DataFrame(X, columns=["a", "b"])
    assert inducing.BNNRegressor(**quick).fit(numbers, Y).feature_names_in_.tolist() == ["a", "b"]


def test_a_schema_that_imputes():
    # pandas < 3 does not copy the array, and other tests use it
    table = pd.DataFrame(X.copy(), columns=["a", "b"])
    table.loc[3, "a"] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        inducing.BNNRegressor(**SMALL).fit(table, Y)
    model = inducing.BNNRegressor(schema=inducing.Schema.of(table, impute=True), **SMALL).fit(table, Y)
    assert np.isfinite(model.predict(table)).all()


def test_a_likelihood_for_classes_or_moments_of_other_targets_are_refused():
    model = inducing.BNNRegressor((4,), max_steps=1, random_state=0, num_inducing=5).fit(X[:20], X[:20, 0])
    state, tensors = model.to_state()
    network, likelihood = model.network_, model.likelihood_
    with pytest.raises(ValueError, match="not Categorical"):
        type(model).from_state(state, tensors, network, inducing.Categorical())
    two = {name: torch.ones(2).double() for name in ("targets.mean", "targets.std")}
    with pytest.raises(ValueError, match="dimensions"):
        type(model).from_state(state, tensors | two, network, likelihood)
    with pytest.raises(ValueError, match="the network maps"):
        type(model).from_state(state | {"targets": {"ndim": 2}}, tensors | two, network, likelihood)
    for ndim in (0, 3, "1"):
        with pytest.raises(ValueError, match=r"ndim|dimensions"):
            type(model).from_state(state | {"targets": {"ndim": ndim}}, tensors, network, likelihood)
    other = inducing.HeteroscedasticGaussian([0.1, 0.1]).double()
    with pytest.raises(ValueError, match="scaled_log_variance of the likelihood"):
        type(model).from_state(state, tensors, network, other)
    assert type(model).from_state(state, tensors, network, likelihood).predict(X[:3]).shape == (3,)


def test_fitting_inside_no_grad_and_inference_mode():
    settings = {"hidden": (4,), "max_steps": 3, "random_state": 0, "num_inducing": 5}
    with torch.no_grad():
        inside = inducing.BNNRegressor(**settings).fit(X[:20], X[:20, 0])
    outside = inducing.BNNRegressor(**settings).fit(X[:20], X[:20, 0])
    assert inside.history_.elbo == outside.history_.elbo
    with torch.inference_mode(), pytest.raises(RuntimeError, match="inference_mode"):
        inducing.BNNRegressor(**settings).fit(X[:20], X[:20, 0])


@pytest.mark.parametrize("regressor", REGRESSORS)
def test_a_saved_model_gives_the_same_predictions(regressor, tmp_path):
    table = pd.DataFrame({"size": X[:, 0], "colour": np.where(X[:, 1] > 3, "red", "blue")})
    model = regressor(posterior=inducing.GlobalInducing(precision="full"), **{**SMALL, "max_steps": 3}).fit(table, BOTH)
    inducing.save(model, tmp_path / "model.safetensors")
    again = inducing.load(tmp_path / "model.safetensors")
    assert type(again) is regressor
    assert np.array_equal(again.predict(table, return_std=True), model.predict(table, return_std=True))
    assert again.get_params() == model.get_params()
    assert again.feature_names_in_.tolist() == ["size", "colour"]
    assert again.elbo_ == model.elbo_
    assert again.history_.records == model.history_.records


@pytest.mark.parametrize(
    ("settings", "y", "error", "message"),
    [
        (
            {"likelihood": "cauchy"},
            Y,
            ValueError,
            "unknown likelihood 'cauchy'",
        ),
        ({"likelihood": "heteroscedastc"}, Y, ValueError, "did you mean 'heteroscedastic'"),
        ({"likelihood": "poisson"}, Y, ValueError, r"needs counts .* Use 'gaussian' or 'student-t'"),
        ({"likelihood": inducing.Poisson()}, Y, TypeError, "likelihood must be a name"),
        ({"hidden": 50}, Y, TypeError, "hidden must list the widths"),
        ({"hidden": (0,)}, Y, ValueError, "hidden must be at least 1, got 0"),
        ({"posterior": "globl"}, Y, ValueError, r"unknown posterior 'globl' \(did you mean 'global'\?\)\. Known names"),
        ({"recipe": "slow"}, Y, ValueError, "unknown recipe 'slow'"),
        ({"num_inducing": 0}, Y, ValueError, "num_inducing must be at least 1"),
        ({"max_steps": 0}, Y, ValueError, "max_steps must be at least 1"),
        ({"n_samples": 0}, Y, ValueError, "n_samples == 0, must be >= 1"),
        ({"n_samples": 2.5}, Y, TypeError, "n_samples must be an instance of int"),
        ({"device": "meta"}, Y, ValueError, "not available"),
        ({"device": "gpu"}, Y, ValueError, "not available"),
        ({}, np.ones((60, 2, 2)), ValueError, "dim 3.*BNNRegressor"),
        ({}, None, ValueError, "requires y to be passed"),
        ({}, np.where(np.arange(60) < 3, 0, np.nan), ValueError, "y contains NaN in 57 rows .first in row 3"),
        ({}, np.where(np.arange(60) < 3, np.inf, np.nan), ValueError, "y contains NaN in 57 rows .*row 3"),
        ({}, np.where(np.arange(60) == 4, np.inf, 0), ValueError, "y contains infinity .* in 1 row .*row 4"),
        ({"posterior": "optimal"}, Y, ValueError, 'for the last layer.*"global->optimal"'),
    ],
)
def test_bad_arguments(settings, y, error, message):
    with pytest.raises(error, match=message):
        inducing.BNNRegressor(**{"max_steps": 1, **settings}).fit(X, y)


def test_weights_of_zero_and_below():
    with pytest.raises(ValueError, match=r"(?i)sample weights"):
        inducing.BNNRegressor(max_steps=1).fit(X, Y, sample_weight=np.zeros(60))
    with pytest.raises(ValueError, match="Negative values"):
        inducing.BNNRegressor(max_steps=1).fit(X, Y, sample_weight=-np.ones(60))


def test_reversed_tables_are_predicted_as_others():
    table = pd.DataFrame(X, columns=["a", "b"])
    model = inducing.BNNRegressor(**SMALL | {"max_steps": 2}).fit(table.iloc[::-1], pd.Series(Y).iloc[::-1])
    np.testing.assert_allclose(model.predict(table.iloc[::-1]), model.predict(table)[::-1])


@pytest.mark.parametrize("size", [1e160, 1e-160])
def test_targets_whose_variance_is_out_of_range_are_refused(size):
    with pytest.raises(ValueError, match="y has values of size"):
        inducing.BNNRegressor(**SMALL).fit(X, size * Y)


def test_large_inputs_are_saved_and_loaded(tmp_path):
    model = inducing.BNNRegressor(**SMALL | {"max_steps": 2}).fit(1e300 * X, Y)
    inducing.save(model, tmp_path / "model.safetensors")
    again = inducing.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.predict(1e300 * X), model.predict(1e300 * X))


@pytest.mark.parametrize("regressor", REGRESSORS)
@pytest.mark.parametrize("posterior", ["global", "local"])
def test_other_threads_do_not_disturb_a_fit(regressor, posterior, monkeypatch):
    """Torch's global generator is shared by all threads."""
    small = {**SMALL, "posterior": posterior, "num_inducing": 5, "max_steps": 2}
    alone = regressor(**small).fit(X[:20], Y[:20]).predict(X[:3])
    for name in ("mlp", "deep_gp"):
        make = getattr(architectures, name)

        def disturbed(*arguments, make=make, **settings):
            torch.manual_seed(12345)
            return make(*arguments, **settings)

        monkeypatch.setattr(architectures, name, disturbed)
    np.testing.assert_allclose(regressor(**small).fit(X[:20], Y[:20]).predict(X[:3]), alone)


def test_a_fit_leaves_the_global_generators_alone():
    before, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    inducing.BNNRegressor(**SMALL | {"posterior": "local", "max_steps": 2}).fit(X, Y).sample_y(X)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numbers)  # noqa: NPY002


def test_text_targets_are_refused_with_an_example():
    with pytest.raises(ValueError, match=r"y contains text.*'red'.*classifier"):
        inducing.BNNRegressor().fit(np.zeros((3, 1)), ["1.5", "red", "2"])


@pytest.mark.parametrize("weighted", [True, False])
def test_the_log_scale_is_chosen_once_with_the_weights_of_the_rows(weighted):
    """Half of the rows decide by their weight. The noise is chosen by the same scale as that of the targets."""
    x = np.random.default_rng(1).normal(size=(1100, 2))
    y = np.where(np.arange(1100) < 550, np.exp(x[:, 0]), 30 + x[:, 0])
    weights = np.where(np.arange(1100) < 550, 3.0, 1e-3) if weighted else None
    model = inducing.BNNRegressor(target_transform="auto", max_steps=3, random_state=0).fit(x, y, weights)
    assert model.targets_.is_log == (weighted,)
    assert isinstance(model.likelihood_, inducing.Gaussian) is weighted
    assert np.isfinite(model.predict(x[:5])).all()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_fit_that_ends_early_leaves_the_estimator_as_it_was(error, tmp_path):
    def stop(record):
        if record.step == 3:
            raise error("stop")

    model = inducing.BNNRegressor(**SMALL)
    with pytest.raises(error):
        model.fit(X, Y, callbacks=stop)
    assert not hasattr(model, "network_")
    for warm_start in (False, True):
        model.set_params(warm_start=warm_start).fit(X, Y)
        before, elbo = model.predict(X), model.elbo_
        with pytest.raises(error):
            model.fit(X, 5 * Y, callbacks=stop)
        assert np.array_equal(model.predict(X), before)
        assert model.elbo_ == elbo
        inducing.save(model, tmp_path / "model.safetensors")


@pytest.mark.parametrize("posterior", [None, [], 3])
def test_a_posterior_that_is_none(posterior):
    with pytest.raises(TypeError, match=r"posterior must be a name, a Posterior, or a list .* e\.g\. 'global', got"):
        inducing.BNNRegressor(posterior=posterior).fit(X, Y)


def test_rows_with_weights_but_without_targets():
    y = BOTH.copy()
    y[:30] = np.nan
    weights = np.where(np.arange(60) < 30, 1.0, 0.0)
    with pytest.raises(ValueError, match="no row with a positive weight has a target"):
        inducing.BNNRegressor(**SMALL).fit(X, y, weights)


def test_imputed_values_are_counted():
    table = pd.DataFrame({"size": X[:, 0], "colour": np.where(X[:, 1] > 3, "red", "blue")})
    table.loc[:2, "size"] = np.nan
    with pytest.warns(inducing.TableWarning, match=r"missing values are imputed in 'size' \(3\)"):
        inducing.BNNRegressor(**{**SMALL, "max_steps": 2}).fit(table, Y)


@pytest.mark.parametrize("likelihood", ["auto", "student-t"])
@pytest.mark.parametrize(("num_rows", "learned"), [(1000, False), (1001, True)])
def test_degrees_of_freedom_of_deep_gps_are_learned_from_many_rows(likelihood, num_rows, learned):
    """Learned from few rows they may fall to 2, and groups of rows become outliers."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(num_rows, 2)), random.normal(size=num_rows)
    model = inducing.DeepGPRegressor(max_steps=1, num_inducing=5, likelihood=likelihood, random_state=0).fit(x, y)
    assert ("scaled_log_excess" in dict(model.likelihood_.named_parameters())) == learned
    assert model.likelihood_.degrees_of_freedom > 2
    if not learned:
        assert model.likelihood_.degrees_of_freedom == pytest.approx(4)
