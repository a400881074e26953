"""The benchmark of the classifiers."""

import numpy as np
import pytest

from benchmarks import classifier_page, classifiers
from benchmarks.cover_types import generate


@pytest.mark.parametrize("model", classifier_page.PEERS)
def test_a_fold_is_scored(model):
    found = classifiers.run_fold("wine", 0, model)
    rows = {len(found[key]) for key in ("log_probability", "confidence", "right")}
    assert rows == {18}
    assert np.mean(found["right"]) > 0.8
    assert np.mean(found["log_probability"]) > np.log(1 / 3)


def test_every_row_is_a_test_row_once():
    found = [len(classifiers.run_fold("wine", fold, "LogisticRegression")["right"]) for fold in (0, 5, 9)]
    assert found == [18, 18, 17]


def test_generated_cover_types():
    x, y = generate(500, seed=1)
    again, _ = generate(500, seed=1)
    np.testing.assert_array_equal(x, again)
    assert x.shape == (500, 54)
    # one area and one soil
    np.testing.assert_array_equal(x[:, 10:].sum(1), 2)
    assert set(y) <= set(range(1, 8))


def test_calibration_errors():
    confidence = np.array([0.55, 0.55, 0.95, 0.95])
    # the first bin: 1 right of 1.1 expected; the last: 2 of 1.9
    assert classifier_page.calibration_error(confidence, np.array([1, 0, 1, 1])) == pytest.approx(0.2 / 4)
    many = np.random.default_rng(0).uniform(0.5, 1, 10_000)
    right = np.random.default_rng(1).random(10_000) < many
    assert classifier_page.calibration_error(many, right) < 3 * classifier_page.error_if_calibrated(many)
    assert classifier_page.calibration_error(many, many > 0) > 10 * classifier_page.error_if_calibrated(many)


def test_the_page_compares_row_by_row():
    def record(log_probabilities):
        right = [int(each > np.log(0.5)) for each in log_probabilities]
        confidence = [max(np.exp(each), 1 - np.exp(each)) for each in log_probabilities]
        return {
            "log_probability": list(log_probabilities),
            "confidence": confidence,
            "right": right,
            "seconds": 2.0,
        }

    rng = np.random.default_rng(0)
    results = {}
    for fold in range(10):
        worse = np.log(rng.uniform(0.3, 0.9, 20))
        results |= {("wine", fold, peer): record(worse) for peer in classifier_page.PEERS}
        results["wine", fold, "BNNClassifier"] = record(worse + 0.05)
    text = classifier_page.page(results, ["wine", "digits"])
    assert "| wine | BNNClassifier | 200 |" in text
    assert "+0.050 ± 0.000" in text
    assert "`BNNClassifier` and `BoostedTrees` on wine: accuracy" in text
    assert "log-likelihood better" in text
    assert "Without results on all folds of any dataset: `DeepGPClassifier`, `AutoClassifier`." in text
    assert "digits" not in text, "nothing is shown before all folds are finished"
    assert "| AutoClassifier" not in text
