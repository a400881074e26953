"""The benchmark of the factor of the noise of a blend."""

import json

import numpy as np
import pytest

import inducing
from benchmarks import blend_noise


def test_scores_without_the_factor_are_those_of_the_models_as_they_were_fitted(monkeypatch):
    x = np.random.default_rng(0).normal(size=(80, 2))
    y = x[:, 0] + 0.1 * np.random.default_rng(1).normal(size=80)
    candidates = {name: inducing.BNNRegressor([5], max_steps=30) for name in ("first", "second")}
    fit = inducing.AutoRegressor
    monkeypatch.setattr(blend_noise, "AutoRegressor", lambda random_state: fit(candidates, random_state=random_state))
    monkeypatch.setattr(blend_noise, "load_fold", lambda name, fold: (x[:60], y[:60], x[60:], y[60:]))
    found = blend_noise.fit_and_score("autos", 0)
    fitted = fit(candidates, random_state=0).fit(x[:60], y[:60])
    assert found["factor"] == fitted.noise_factor_
    again = fit(candidates, weights=fitted.weights_, random_state=fitted.random_state).fit(x[:60], y[:60])
    assert found["without"]["crps"] == pytest.approx(blend_noise.scores(again, x[60:], y[60:])["crps"], rel=1e-3)
    assert found["with"]["crps"] == blend_noise.scores(fitted, x[60:], y[60:])["crps"]


def test_the_page_has_a_row_for_each_dataset(tmp_path, monkeypatch):
    monkeypatch.setattr(blend_noise, "RESULTS", tmp_path / "results.jsonl")
    before = {"log_likelihoods": [-2.0, -2.0], "crps": 1.0, "in_50": 0.5, "in_90": 1.0}
    after = {"log_likelihoods": [-1.0, -1.0], "crps": 1.0, "in_50": 0.25, "in_90": 0.5}
    line = {"set": "autos", "fold": 0, "factor": 0.5, "with": after, "without": before}
    blend_noise.RESULTS.write_text(json.dumps(line) + "\n")
    assert (
        "| autos | 0.50 | 2 | -2.000 | +1.000 ± 0.000 | 1.000, 1.000 | 0.500, 0.250 | 1.000, 0.500 |"
        in blend_noise.page()
    )
