import math
from dataclasses import asdict, replace

import pytest

from inducing.experiments.engine.registry import EXPERIMENTS
from inducing.experiments.engine.store import REVISION, config_key
from inducing.experiments.linear import LINEAR
from inducing.experiments.toy import TOY


def test_the_grid_of_a_preset():
    assert len(LINEAR.configs("paper")) == 3 * 5 * 5
    assert {config.width for config in LINEAR.configs("smoke")} == {5}
    assert {config.num_steps for config in LINEAR.configs("paper")} == {40_000}


def test_differences_from_the_paper_in_words():
    assert LINEAR.differences("smoke")["num_steps"] == "num_steps 3 instead of 40000"
    assert LINEAR.differences("smoke")["depth"] == "depth 1, 2 instead of 1, 2, 4, 8, 16"
    images = EXPERIMENTS["mnist500"].differences("cpu")
    assert images["unknown"] == "unknown notmnist instead of none"
    assert images["last_local"] == "last_local the default or 500"
    assert TOY.differences("paper") == {}
    assert list(TOY.differences("cpu").values()) == [
        "recipe fast instead of paper:toy",
        "precision per_output instead of shared",
        "hidden_log_precision 2.0 instead of -4.0",
        "num_steps 10000 instead of 5000",
        "test_samples 2000 instead of 100",
        "hmc_warmup 2000 instead of 10000",
        "hmc_samples 4000 instead of 10000",
    ]


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(ValueError, match="paper, smoke, cpu"):
        TOY.configs("gpu")


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_every_experiment_has_all_presets(experiment):
    assert {"smoke", "cpu"} <= set(experiment.presets)
    assert all(experiment.configs(preset) for preset in ("smoke", "cpu", "paper"))


def test_a_preset_of_several_parts():
    parts = [{"width": (5,), "depth": (1,), "num_steps": 9}, {"width": (50,), "depth": (1, 2)}]
    experiment = replace(
        LINEAR, grid={"width": (5, 50), "depth": (1, 2)}, presets={"cpu": {"parts": [*parts, parts[1]]}}
    )
    found = [(config.width, config.depth, config.num_steps) for config in experiment.configs("cpu")]
    assert found == [(5, 1, 9), (50, 1, 40_000), (50, 2, 40_000)], "nothing twice"
    assert list(experiment.differences("cpu").values()) == ["num_steps 9 or 40000 instead of 40000"]
    fewer = replace(experiment, presets={"cpu": {"parts": parts[:1] * 2}})
    assert fewer.differences("cpu")["width"] == "width 5 instead of 5, 50"


def test_without_trials_a_configuration_is_settled():
    config = LINEAR.configs("paper")[0]
    assert LINEAR.settle(config, {}) == (config, (), None)


def stored(config, elbo, revision=REVISION):
    """A finished run in a store."""
    run = asdict(config)
    return {config_key(run): {"config": run, "metrics": {"elbo_per_datapoint": elbo}, "revision": revision}}


def test_steps_are_doubled_until_the_elbo_of_split_0_hardly_changes():
    config = replace(LINEAR.configs("paper")[0], num_steps=10, split=3, doublings=2)
    first = replace(config, split=0, doublings=None)
    second, third = replace(first, num_steps=20), replace(first, num_steps=40)
    assert LINEAR.settle(config, {}).missing == (first, second)
    close = stored(first, -1.0) | stored(second, -0.99)
    assert LINEAR.settle(config, close) == (replace(first, split=3), (), True)
    results = stored(first, -1.0) | stored(second, -0.9)
    assert LINEAR.settle(config, results).missing == (third,)
    assert LINEAR.settle(config, results | stored(third, -0.89)) == (replace(second, split=3), (), True)
    assert LINEAR.settle(config, results | stored(third, -0.8)) == (replace(third, split=3), (), False)
    worse = stored(first, -1.0) | stored(second, -1.2)
    assert LINEAR.settle(config, worse).missing == (third,), "an ELBO that falls has not converged either"
    for last in (-1.3, -1.19):
        found = LINEAR.settle(config, worse | stored(third, last))
        assert found == (replace(first, split=3), (), False), "two equal ELBOs below an earlier one have not converged"
    failed = stored(first, math.nan) | stored(second, -1.2)
    assert LINEAR.settle(config, failed | stored(third, -1.0)) == (replace(third, split=3), (), False)


def test_states_of_finished_runs():
    config = replace(LINEAR.configs("paper")[0], num_steps=10, doublings=1)
    first = replace(config, doublings=None)
    second = replace(first, num_steps=20)

    def state(results, wanted=config):
        (run,) = LINEAR.finished([wanted], results)
        return run["state"], run["config"]["num_steps"]

    assert state(stored(first, -1.0)) == ("not checked", 10)
    assert state(stored(first, -1.0) | stored(second, -1.01)) == ("converged", 10)
    assert state(stored(first, -1.0) | stored(second, -0.5)) == ("not converged", 20)
    assert state(stored(first, -1.0, revision=1)) == ("out of date", 10)
    # runs that are out of date decide nothing
    assert state(stored(first, -1.0) | stored(second, -1.01, revision=1)) == ("not checked", 10)
    assert state(stored(first, -1.0), first) == ("", 10)
    # as long as the number of steps is undecided, the longest run is shown
    assert state(stored(second, -1.0)) == ("not checked", 20)


def test_a_row_with_new_runs_leaves_out_those_that_are_out_of_date():
    config = LINEAR.configs("paper")[0]
    old, new = replace(config, split=1), config
    found = LINEAR.finished([new, old], stored(new, -1.0) | stored(old, -2.0, revision=1))
    assert [(run["config"]["split"], run["state"]) for run in found] == [(0, "")]
    (only_old,) = LINEAR.finished([new, old], stored(old, -2.0, revision=1))
    assert only_old["state"] == "out of date"


def test_a_part_of_the_runs_may_be_out_of_date():
    experiment = replace(LINEAR, later=[{"posterior": ["local", "global"], "width": [5], "since": REVISION + 1}])
    states = {}
    for config in experiment.configs("paper"):
        (found,) = experiment.finished([config], stored(config, -1.0))
        states[config.posterior, config.width] = found["state"]
    old = {key for key, state in states.items() if state == "out of date"}
    assert old == {("local", 5), ("global", 5)}
    (new,) = experiment.finished([config], stored(config, -1.0, revision=REVISION + 1))
    assert new["state"] == ""


def test_results_are_in_the_order_of_the_grid_with_the_splits_of_a_row_together():
    experiment = replace(LINEAR, grid={"split": (0, 1), "posterior": ("local", "global")})
    rows = [("global", 1), ("local", 1), ("global", 0), ("local", 0)]
    found = experiment.sort({"config": {"posterior": posterior, "split": split}} for posterior, split in rows)
    assert [tuple(result["config"].values()) for result in found] == [
        ("local", 0),
        ("local", 1),
        ("global", 0),
        ("global", 1),
    ]
