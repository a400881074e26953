from dataclasses import replace
from types import SimpleNamespace

import pytest

import inducing
from inducing.experiments.epoch_times import COMPARISON, EPOCH_TIMES, RATIO


def test_steps_are_timed_in_turn_with_those_of_a_factorised_posterior(small_images, monkeypatch):
    """The median over all steps but the first of each call, times the number of batches."""
    (config,) = (each for each in EPOCH_TIMES.configs("smoke") if each.posterior == "global")
    called = []

    def fit(network, *arguments, **settings):
        called.append("factorised" if network.inducing_points is None else "global")
        ends = [100.0, 101.0, 103.0] if called[-1] == "global" else [100.0, 100.5, 101.0]
        return SimpleNamespace(records=[SimpleNamespace(seconds=end) for end in ends])

    monkeypatch.setattr(inducing, "fit", fit)
    metrics = EPOCH_TIMES.run(replace(config, num_steps=2, rounds=3), progress=False)
    assert called == ["global", "factorised"] * 3
    # 20 images in batches of 10; steps of 1 and 2 seconds, and of 0.5
    assert metrics == {"seconds": 3.0, "seconds_factorised": 1.0, "over_factorised": 3.0}


def test_the_papers_ratios():
    assert COMPARISON.paper(("global",), RATIO).mean == pytest.approx(65 / 19, abs=0.01)
    (config,) = {(each.model, each.prior, each.num_inducing, each.batch_size) for each in EPOCH_TIMES.configs("paper")}
    assert config == ("resnet8", "scale", 500, 500)
