from dataclasses import replace

import pytest

from inducing.experiments.epoch_times import COMPARISON, EPOCH_TIMES, RATIO


def test_a_run_is_timed_in_turn_with_a_factorised_one(small_images):
    (config,) = (each for each in EPOCH_TIMES.configs("smoke") if each.posterior == "global")
    metrics = EPOCH_TIMES.run(replace(config, num_steps=2), progress=False)
    assert metrics["seconds"] > 0
    assert metrics["over_factorised"] == pytest.approx(metrics["seconds"] / metrics["seconds_factorised"])


def test_the_papers_ratios():
    assert COMPARISON.paper(("global",), RATIO).mean == pytest.approx(65 / 19, abs=0.01)
    (config,) = {(each.model, each.prior, each.num_inducing, each.batch_size) for each in EPOCH_TIMES.configs("paper")}
    assert config == ("resnet8", "scale", 500, 500)
