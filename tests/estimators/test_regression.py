"""Regressors: shapes, scales, what is the same and what is not, messages."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch

import inducing
from inducing.estimators import architectures, functions

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(3.0, 2.0, (60, 2))
Y = 100 + 20 * np.sin(X[:, 0]) + RANDOM.normal(size=60)
BOTH = np.stack([Y, -3 * Y + X[:, 1]], 1)
REGRESSORS = [inducing.BNNRegressor, inducing.DeepGPRegressor]
SMALL = {"likelihood": "gaussian", "num_inducing": 15, "n_samples": 20, "max_steps": 30, "random_state": 0}


# a last layer that is learned, one that is exact, and processes
MODELS = [(REGRESSORS[0], 15), (REGRESSORS[0], "auto"), (REGRESSORS[1], 15)]


@pytest.fixture(scope="module", params=MODELS, ids=["learned", "exact", "processes"])
def model(request):
    kind, number = request.param
    return kind(**SMALL | {"num_inducing": number, "max_steps": 60}).fit(X, Y)


@pytest.fixture(scope="module")
def two():
    return inducing.BNNRegressor(**SMALL | {"max_steps": 60}).fit(X, BOTH)


def test_predictions_are_on_the_scale_of_the_targets(model):
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (60,)
    assert mean.dtype == std.dtype == np.float64
    assert np.array_equal(mean, model.predict(X))
    assert abs(mean.mean() - 100) < 10
    assert ((std > 0.5) & (std < 40)).all()
    assert model.score(X, Y) > 0.3
    assert -10 < model.elbo_ < 5
    assert len(model.history_) == 60


def test_the_covariance_agrees_with_the_standard_deviation(model):
    mean, cov = model.predict(X[:7], return_cov=True)
    expected, std = model.predict(X[:7], return_std=True)
    assert cov.shape == (7, 7)
    np.testing.assert_allclose(mean, expected)
    np.testing.assert_allclose(np.diag(cov), std**2)
    np.testing.assert_allclose(cov, cov.T)
    assert np.linalg.eigvalsh(cov).min() > 0
    with pytest.raises(RuntimeError, match="at most one of return_std and return_cov"):
        model.predict(X, return_std=True, return_cov=True)


def test_intervals_are_quantiles(model):
    low, high = model.predict_interval(X, 0.5)
    quantiles = model.predict_quantiles(X, [0.25, 0.5, 0.75])
    assert quantiles.shape == (3, 60)
    assert np.array_equal(low, quantiles[0])
    assert np.array_equal(high, quantiles[2])
    assert (np.diff(quantiles, axis=0) > 0).all()
    assert np.array_equal(model.predict_quantiles(X, 0.25), low)
    with pytest.raises(ValueError, match=r"coverage must be between 0 and 1, got 90"):
        model.predict_interval(X, 90)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.predict_quantiles(X, 1.0)


def test_predictions_do_not_depend_on_the_batches(model, monkeypatch):
    whole = model.predict(X, return_std=True), model.predict_quantiles(X, 0.1), model.sample_y(X, 3, 1)
    monkeypatch.setattr(functions, "BATCH_NUMBERS", 7 * model.n_samples * model._width())
    parts = model.predict(X, return_std=True), model.predict_quantiles(X, 0.1), model.sample_y(X, 3, 1)
    rows = [model.predict(X[row : row + 1])[0] for row in range(5)]
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-10)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-10)
    np.testing.assert_allclose(parts[2], whole[2], rtol=1e-10)
    np.testing.assert_allclose(rows, whole[0][0][:5], rtol=1e-10)


def test_memory_of_a_batch_is_bounded(model, monkeypatch):
    """However many rows there are, a batch holds no more numbers than it may."""
    monkeypatch.setattr(functions, "BATCH_NUMBERS", 2**17)
    batches = model.sample_functions(5).predict_batches(np.zeros((1000, 2)))
    sizes = [predictive.outputs.shape[1] for predictive in batches]
    assert sum(sizes) == 1000
    assert max(sizes) * 5 * model._width() <= 2**17


def test_sampled_functions_are_functions(model):
    functions = model.sample_functions(4, random_state=1)
    values = functions(X)
    assert values.shape == (4, 60)
    np.testing.assert_allclose(functions(X[5:9]), values[:, 5:9], rtol=1e-10)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(functions))(X), values, rtol=1e-12)
    assert not np.allclose(model.sample_functions(4, random_state=2)(X), values)
    # on the scale of the targets, around their mean
    many = model.sample_functions(200, random_state=0)(X)
    epistemic = model.predict_distribution(X).epistemic.numpy()[:, 0]
    assert (np.abs(many.mean(0) - model.predict(X)) < 6 * np.sqrt(epistemic / model.n_samples)).all()


def test_samples_have_the_noise_of_the_targets(model):
    samples = model.sample_y(X[:10], 500, random_state=0)
    assert samples.shape == (10, 500)
    _, std = model.predict(X[:10], return_std=True)
    assert np.abs(samples.std(1) / std - 1).max() < 0.4
    assert np.array_equal(samples, model.sample_y(X[:10], 500, random_state=0))
    assert not np.array_equal(samples[:, :5], model.sample_y(X[:10], 5, np.random.RandomState(7)))


def test_several_targets(two):
    mean, std = two.predict(X, return_std=True)
    assert mean.shape == std.shape == (60, 2)
    assert two.predict(X[:5], return_cov=True)[1].shape == (5, 5, 2)
    assert two.predict_quantiles(X, [0.1, 0.9, 0.95]).shape == (3, 60, 2)
    assert two.sample_y(X, 4).shape == (60, 2, 4)
    assert two.sample_functions(4)(X).shape == (4, 60, 2)
    assert two.likelihood_.noise_variance.shape == (2,)
    assert two.score(X, BOTH) > 0.3
    # one column is not the same as none
    assert inducing.BNNRegressor(**{**SMALL, "max_steps": 1}).fit(X, Y[:, None]).predict(X).shape == (60, 1)


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


@pytest.mark.parametrize(("rows", "weight"), [(10, 0.1), (875, 0.5)])
def test_the_weight_of_the_kl_grows_with_the_rows(rows, weight):
    """Up to 1,000 rows; with more, held-out rows choose it."""
    assert inducing.BNNRegressor()._make_recipe(rows).temperature == weight
    assert inducing.BNNClassifier()._make_recipe(rows).temperature == 0.1
    assert inducing.DeepGPRegressor()._make_recipe(rows).temperature == 1.0


def test_a_warm_start_goes_on():
    quick = {**SMALL, "hidden": (10,), "max_steps": 10}
    model = inducing.BNNRegressor(**quick, warm_start=True).fit(X, Y)
    network, first = model.network_, model.history_[-1].objective
    model.fit(X, Y)
    assert model.network_ is network
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


def test_reversed_rows_are_predicted_as_others(two):
    backward = X[::-1]
    np.testing.assert_allclose(two.predict(backward), two.predict(X)[::-1])
    np.testing.assert_allclose(two.score(backward, BOTH[::-1]), two.score(X, BOTH))
    assert two.sample_y(np.flip(X, 0), 2).shape == (60, 2, 2)
    assert two.sample_functions(2)(backward).shape == (2, 60, 2)
    two.predict_distribution(backward).log_prob(BOTH[::-1])


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


@pytest.mark.parametrize(("value", "found", "advice"), [(np.nan, "NaN", ", or impute"), (-np.inf, "infinity", "")])
def test_inputs_that_are_not_finite_are_refused_with_their_place(model, value, found, advice):
    inputs = X.copy()
    inputs[[3, 5], 1] = value
    message = (
        rf"Input X contains {found}.* in 2 rows \(first in row 3 and column 1\)\. Remove these rows{advice or '.'}"
    )
    for use in (inducing.BNNRegressor(max_steps=1).fit, model.score):
        with pytest.raises(ValueError, match=message):
            use(inputs, Y)
