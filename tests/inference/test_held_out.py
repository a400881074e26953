"""Held-out rows in `fit`: scores, the best parameters, early stopping, checkpoints."""

import numpy as np
import pytest
import torch

import inducing
from inducing.inference.held_out import Scores

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(80, 2, generator=GENERATOR, dtype=torch.float64)
Y = X[:, :1].sin() + 0.3 * torch.randn(80, 1, generator=GENERATOR, dtype=torch.float64)
TRAIN, REST = (X[:50], Y[:50]), (X[50:], Y[50:])


def model():
    points = {"inducing_points": X[:10], "inducing_targets": Y[:10]}
    return inducing.models.mlp(
        2, 1, [5], generator=torch.Generator().manual_seed(0), **points
    ), inducing.Gaussian().double()


def fit(network, likelihood, validation=REST, **settings):
    settings = {
        "num_steps": 40,
        "learning_rate": 0.1,
        "num_samples": 2,
        "early_samples": None,
        "progress": False,
    } | settings
    return inducing.fit(network, likelihood, TRAIN, validation=validation, **settings)


def test_the_score_is_the_predictive_log_likelihood():
    """All functions of a plain network are equal, so no noise is left."""
    network, likelihood = inducing.models.mlp(2, 1, [5], posterior="point").double(), inducing.Gaussian().double()
    predictive = inducing.predict(network, likelihood, X, 3)
    score = inducing.HeldOut(X, Y, num_samples=3).score(network, likelihood, 0)
    assert score == pytest.approx(inducing.metrics.log_likelihood(predictive, Y), abs=1e-12)


def test_a_row_with_weight_two_counts_as_two_rows():
    network, likelihood = model()
    weights = torch.tensor([1.0, 2.0, 0.0, 3.0]).double().repeat(20)
    rows = torch.arange(80).repeat_interleave(weights.long())
    weighted, equal = inducing.HeldOut(X, Y, weights=weights), inducing.HeldOut(X[rows], Y[rows])
    assert weighted.score(network, likelihood, 0) == pytest.approx(equal.score(network, likelihood, 0), abs=1e-12)
    # a row of weight zero cannot make the mean infinite
    values = equal.log_likelihoods(network, likelihood, 0)[:80]
    values[2] = -torch.inf
    assert weighted.mean(values).isfinite()


def test_standard_errors():
    values = torch.tensor([1.0, 2.0, 6.0])
    equal, alike, unequal = (
        inducing.HeldOut(X[:3], Y[:3], weights=None if weights is None else torch.tensor(weights))
        for weights in (None, [7.0] * 3, [1.0, 2.0, 1.0])
    )
    assert float(equal.standard_error(values)) == pytest.approx(float(values.std(correction=0)) / 3**0.5)
    assert float(alike.standard_error(values)) == pytest.approx(float(equal.standard_error(values)))
    # mean 11 / 4, deviations -7/4, -3/4, 13/4
    assert float(unequal.mean(values)) == 2.75
    assert float(unequal.standard_error(values)) == pytest.approx((1.75**2 + (2 * 0.75) ** 2 + 3.25**2) ** 0.5 / 4)


def test_training_ends_with_the_best_parameters():
    network, likelihood = model()
    held_out = inducing.HeldOut(*REST, every=3, patience=None)
    history = fit(network, likelihood, held_out)
    assert [step for step, _ in history.held_out] == [*range(3, 40, 3), 40]
    scores = [score for _, score in history.held_out]
    assert max(scores) > scores[-1], "the last ones are not the best, or this tests nothing"
    assert held_out.score(network, likelihood, 0) == max(scores)


def test_held_out_rows_do_not_change_training():
    """The noise of the steps is the same with and without them."""
    alone, beside = model(), model()
    fit(*alone, None, num_steps=12)
    history = fit(*beside, inducing.HeldOut(*REST, every=12), num_steps=12)
    assert len(history.held_out) == 1
    assert all(map(torch.equal, alone[0].parameters(), beside[0].parameters()))


def test_early_stopping():
    history = fit(*model(), inducing.HeldOut(*REST, every=1, patience=4), num_steps=500, learning_rate=0.3)
    scores = [score for _, score in history.held_out]
    assert len(history) == len(scores) < 500
    assert scores.index(max(scores)) == len(scores) - 5


def test_an_interrupted_run_ends_like_an_uninterrupted_one(tmp_path):
    whole, parts = model(), model()
    held_out = inducing.HeldOut(*REST, every=3, patience=None)
    wanted = fit(*whole, held_out, schedule="constant")
    fit(*parts, held_out, schedule="constant", num_steps=25, checkpoint=tmp_path)
    parts = model()
    found = fit(*parts, held_out, schedule="constant", checkpoint=tmp_path)
    # the score of the last step of the first part remains
    assert [each for each in found.held_out if each[0] != 25] == wanted.held_out
    assert all(map(torch.equal, whole[0].parameters(), parts[0].parameters()))
    parts = model()
    fit(*parts, held_out, schedule="constant", checkpoint=tmp_path)
    assert all(map(torch.equal, whole[0].parameters(), parts[0].parameters())), "a finished run"
    with pytest.raises(inducing.CheckpointError, match=r"other every \(3 and not 4\)"):
        fit(*model(), inducing.HeldOut(*REST, every=4), schedule="constant", checkpoint=tmp_path)


def test_a_repeated_step_replaces_its_score():
    scores = Scores()
    for step, score in ((1, 0.0), (2, 5.0), (3, 1.0), (2, 4.0)):
        scores.add(step, score, [torch.tensor(float(step))])
    assert scores.scores == [(1, 0.0), (2, 4.0)]


@pytest.mark.parametrize(
    ("validation", "error", "message"),
    [
        (X, TypeError, r"validation must be rows \(x, y\)"),
        ((X, Y, torch.ones(3)), ValueError, "weights"),
        ((X[:0], Y[:0]), ValueError, "validation has no rows"),
        ((X[:, :1], Y), ValueError, "2"),
        ((X, Y[:, 0]), ValueError, "y"),
    ],
)
def test_bad_rows(validation, error, message):
    with pytest.raises(error, match=message):
        fit(*model(), validation)
    with pytest.raises(ValueError, match="every"):
        inducing.HeldOut(X, Y, every=0)


def test_what_was_best_is_forgotten_when_its_step_is_undone():
    scores = Scores()
    for step, score, value in ((50, -1.0, 50.0), (100, 5.0, 100.0), (100, -2.0, 100.5)):
        scores.add(step, score, [torch.tensor(value)])
    assert scores.scores == [(50, -1.0), (100, -2.0)]
    assert scores.best == [torch.tensor(50.0)]
    scores.add(150, -0.5, [torch.tensor(150.0)])
    assert scores.best == [torch.tensor(150.0)]


def test_a_score_that_is_nan_is_the_worst():
    scores = Scores()
    for step, score in ((1, float("nan")), (2, -1.0), (3, -2.0)):
        scores.add(step, score, [torch.tensor(float(step))])
    assert scores.best == [torch.tensor(2.0)]
    assert not scores.are_stale(2)


def test_scores_during_the_warm_up_of_the_kl_do_not_count(tmp_path):
    """Training goes on after them, and ends with parameters that were trained with the whole KL, also if it continues."""
    settings = {"num_steps": 24, "kl_warmup_fraction": 0.5, "schedule": "constant"}
    held_out = inducing.HeldOut(*REST, every=2, patience=2)

    class Falling(inducing.HeldOut):
        """Each score is below the one before."""

        def score(self, *_):
            counts.append(len(counts))
            return -float(len(counts))

    counts = []
    history = fit(*model(), Falling(*REST, every=2, patience=2), **settings)
    assert len(history) == 16, "two more scores than the first one that counts, at step 12"
    assert max(history.held_out, key=lambda each: each[1])[0] == 2
    whole, parts = model(), model()
    wanted = fit(*whole, held_out, **settings)
    with pytest.raises(KeyboardInterrupt):
        fit(*parts, held_out, **settings, checkpoint=tmp_path, callbacks=interrupt_at(7))
    parts = model()
    found = fit(*parts, held_out, **settings, checkpoint=tmp_path)
    assert found.held_out == wanted.held_out
    assert all(map(torch.equal, whole[0].parameters(), parts[0].parameters()))


def interrupt_at(step):
    def interrupt(record):
        if record.step == step:
            raise KeyboardInterrupt

    return interrupt


def test_numbers_of_numpy(tmp_path):
    held_out = inducing.HeldOut(*REST, every=np.int64(2))
    assert fit(*model(), held_out, num_steps=4, checkpoint=tmp_path).held_out[0][0] == 2
