"""Training on many rows: a start from a plain network, a temperature chosen by held-out rows, all rows at the end."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV

import inducing
from inducing.estimators import architectures, stages, training
from inducing.estimators.calibrating import Factors

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(1500, 3))
Y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.05 * RANDOM.normal(size=1500)


@pytest.fixture
def calls(monkeypatch):
    """The calls of `fit`: rows, steps, rows held out, temperature."""
    found, fit = [], training.fit

    def recorded(network, likelihood, data, recipe, validation=None, **settings):
        found.append((len(data[0]), recipe.num_steps, len(getattr(validation, "x", ())), recipe.temperature))
        return fit(network, likelihood, data, recipe, validation=validation, **settings)

    monkeypatch.setattr(training, "fit", recorded)
    return found


def test_the_stages(calls):
    model = inducing.BNNRegressor(max_steps=100, random_state=0).fit(X, Y)
    plain, *trials, longer, last = calls
    assert plain == (1350, 20, 150, 1.0)
    assert {call[:3] for call in trials} == {(1350, 10, 150)}
    temperatures = [call[3] for call in trials]
    assert temperatures[:2] == [0.3, 0.1]
    assert len(set(temperatures)) == len(temperatures), "each is trained once"
    assert longer[3] in temperatures
    assert longer == (1350, 34, 150, longer[3])
    assert last == (1500, 6, 0, longer[3])
    assert sum(call[1] for call in calls) <= 100
    assert [record.step for record in model.history_.records] == list(range(1, len(model.history_) + 1))
    assert model.network_.num_inducing == architectures.INDUCING_FOR_STAGES
    assert [layer.out_features for _, layer in model.network_.layers.bayesian_layers()] == [100, 100, 2]


def test_noise_has_heavy_tails():
    many, few = (inducing.BNNRegressor(max_steps=1, random_state=0).fit(X[:rows], Y[:rows]) for rows in (1001, 1000))
    assert isinstance(many.likelihood_, inducing.HeteroscedasticStudentT)
    assert isinstance(few.likelihood_, inducing.HeteroscedasticGaussian)
    assert isinstance(
        inducing.BNNClassifier(max_steps=1, random_state=0).fit(X, Y > 0).likelihood_, inducing.Categorical
    )


def test_held_out_rows_choose_factors_before_they_return(monkeypatch):
    """The last stage leaves the noise as the factors made it."""
    found, weights, fit = [], [], stages.Stages.fit

    def find_factors(network, likelihood, rows, seed):
        found.append((likelihood.base_variance.item(), rows.x.clone()))
        weights.append(rows.weights)
        return Factors(noise=2)

    def recorded(self, stage, network, likelihood, share, *num_draws, **changes):
        if stage == "all rows":
            found.append((likelihood.base_variance.item(), self.training.data[0]))
        return fit(self, stage, network, likelihood, share, *num_draws, **changes)

    monkeypatch.setattr(stages, "find_factors", find_factors)
    monkeypatch.setattr(stages.Stages, "fit", recorded)
    model = inducing.BNNRegressor([5], num_inducing=10, max_steps=100, random_state=0).fit(X, Y)
    (before, held_out), (after, everything) = found
    assert after == pytest.approx(4 * before)
    assert model.likelihood_.base_variance.item() == after
    assert len(held_out) == 150
    assert len(everything) == 1500
    assert all(parameter.requires_grad for parameter in model.likelihood_.parameters())
    assert weights.pop() is None
    inducing.BNNRegressor([5], num_inducing=10, max_steps=20, random_state=0).fit(X, Y, np.full(1500, 2.0))
    assert torch.equal(weights.pop(), torch.full((150,), 2.0, dtype=torch.float64))


@pytest.mark.parametrize(("noise", "log_precision"), [(1.0, 5.0), (1e-5, -1 - np.log(1e-5))])
def test_little_noise_needs_a_precise_start(noise, log_precision):
    plain = inducing.models.mlp(3, 1, [5], posterior=inducing.PointEstimate())
    found = stages._initial_log_precision(plain, inducing.Gaussian(noise), torch.from_numpy(X[:10]).float())
    assert found == pytest.approx(log_precision, abs=1e-4)


@pytest.mark.parametrize(
    ("scores", "best", "tried"),
    [
        ([0, 3, 2, 9, 9], 1, {0, 1, 2}),
        ([4, 3, 2, 9, 9], 0, {0, 1, 2}),
        ([9, 1, 2, 3, 2], 3, {1, 2, 3, 4}),
        ([9, 1, 2, 3, 4], 4, {1, 2, 3, 4}),
        ([1, 1, 1, 1, 1], 1, {0, 1, 2}),
    ],
)
def test_temperatures_are_tried_as_long_as_they_help(scores, best, tried):
    seen = set()

    def score(place):
        seen.add(place)
        return scores[place]

    assert stages.find_peak(score, stages.FIRST, 5) == best
    assert seen == tried


def test_the_held_out_rows_of_the_user_do_not_return(calls):
    model = inducing.BNNRegressor(max_steps=100, random_state=0).fit(X[:1200], Y[:1200], eval_set=(X[1200:], Y[1200:]))
    assert {call[0] for call in calls} == {1200}
    assert {call[2] for call in calls} == {300}
    assert model.history_.held_out


@pytest.mark.parametrize(
    "settings", [{"posterior": "global"}, {"recipe": inducing.recipes.FAST}, {"warm_start": True}], ids=str
)
def test_settings_of_the_user_have_no_stages(calls, settings):
    model = inducing.BNNRegressor(max_steps=2, random_state=0, **settings).fit(X, Y)
    assert len(calls) == 1
    assert len(model.history_) == 2


def test_few_rows_have_no_stages_and_can_be_stopped_by_others(calls):
    model = inducing.BNNRegressor(max_steps=60, random_state=0).fit(X[:100], Y[:100], eval_set=(X[100:200], Y[100:200]))
    assert len(calls) == 1
    assert [step for step, _ in model.history_.held_out] == [50, 60]


def test_it_learns_what_ridge_cannot():
    model = inducing.BNNRegressor([30], num_inducing=50, max_steps=1500, random_state=0).fit(X[:1200], Y[:1200])
    error, linear = ((each.predict(X[1200:]) - Y[1200:]) ** 2 for each in (model, RidgeCV().fit(X[:1200], Y[:1200])))
    assert error.mean() < 0.2 * linear.mean()
    low, high = model.predict_interval(X[1200:])
    assert 0.8 < np.mean((low < Y[1200:]) & (Y[1200:] < high)) < 0.99


def test_classes_and_weights(calls, monkeypatch):
    labels = np.where(Y > 0, "yes", "no")
    weights = RANDOM.integers(1, 3, 1500)
    seen, score = set(), inducing.HeldOut.score

    def recorded(self, *arguments):
        seen.update(self.weights.tolist())
        return score(self, *arguments)

    monkeypatch.setattr(inducing.HeldOut, "score", recorded)
    model = inducing.BNNClassifier([20], num_inducing=40, max_steps=1000, random_state=0).fit(
        X, labels, sample_weight=weights
    )
    assert seen == {1.0, 2.0}
    assert len(calls) > 3
    assert model.score(X, labels) > 0.8


def test_distinct_rows_decide_about_stages(calls):
    """600 rows, each twice, are few rows: they have the recipe of few rows, and are trained at once."""
    twice = np.repeat(np.arange(600), 2)
    # a callback that ends the training at once
    inducing.BNNRegressor([5], num_inducing=10, random_state=0).fit(X[twice], Y[twice], callbacks=lambda record: True)
    ((rows, steps, *_),) = calls
    assert (rows, steps) == (600, architectures.BNN_FEW_ROWS["num_steps"])


def test_the_same_seed_gives_the_same_network():
    first, second = (inducing.BNNRegressor(max_steps=20, random_state=3).fit(X, Y) for _ in range(2))
    assert np.array_equal(first.predict(X[:5]), second.predict(X[:5]))


def test_a_target_is_not_held_out_of_all_training_rows():
    x = torch.arange(100.0)[:, None]
    for row in range(10):
        y = torch.cat([x, torch.where(x == row, x, torch.nan)], 1)
        (train, targets), (held_out, _) = stages.split((x, y), 0)
        assert not targets[:, 1].isnan().all()
        assert len(held_out) in (9, 10)
        assert torch.equal(torch.cat([train, held_out]).sort(0).values, x)


def test_the_split():
    x = torch.arange(50_000.0)[:, None]
    train, (held_out, _, weights) = stages.split((x, x, x[:, 0]), 0)
    assert torch.equal(weights, held_out[:, 0])
    assert len(held_out) == stages.MOST_HELD_OUT
    assert torch.equal(torch.cat([train[0], held_out]).sort(0).values, x)
    assert torch.equal(train[0][:, 0], train[2])
