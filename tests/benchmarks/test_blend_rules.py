"""The benchmark of rules for the weights of a blend."""

import json

import numpy as np
import pytest

from benchmarks import blend_rules

SCORES = np.random.default_rng(0).normal(size=(60, 3))


@pytest.mark.parametrize("rule", blend_rules.RULES)
def test_the_weights_of_each_rule_sum_to_one(rule):
    weights = blend_rules.RULES[rule](SCORES)
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(), 1)


def test_one_pseudo_row_each_is_the_rule_of_the_estimator():
    rules = [blend_rules.RULES[rule](SCORES) for rule in ("AutoRegressor", "largest with 1 pseudo-row each")]
    np.testing.assert_allclose(*rules, atol=1e-4)


def test_the_page_shows_the_mean_of_each_dataset(tmp_path, monkeypatch):
    monkeypatch.setattr(blend_rules, "RESULTS", tmp_path / "results.jsonl")
    equal = {"held_out": [[-1.0, -1.0]] * 5, "test": [[-2.0, -2.0], [-4.0, -4.0]]}
    lines = [{"set": "autos", "fold": fold, **equal} for fold in range(2)] + [{"set": "solar", "fold": 0, **equal}]
    blend_rules.RESULTS.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = blend_rules.page()
    assert "| rule | autos (2) | solar (1) |" in page
    assert "| equal weights | -3.000 | -3.000 |" in page
    assert "| *AutoRegressor minus the best of them* | +0.000 ± 0.000 | +0.000 ± 0.000 |" in page
