import pytest

from inducing.experiments.linear import LINEAR
from inducing.experiments.registry import EXPERIMENTS
from inducing.experiments.toy_hmc import TOY


def test_the_grid_of_a_preset():
    assert len(LINEAR.configs("paper")) == 3 * 5 * 5
    assert {config.width for config in LINEAR.configs("smoke")} == {5}
    assert {config.num_steps for config in LINEAR.configs("paper")} == {40_000}


def test_deviations_are_put_into_words():
    assert "num_steps 3 instead of 40000" in LINEAR.deviations("smoke")
    assert "depth 1, 2 instead of 1, 2, 4, 8, 16" in LINEAR.deviations("smoke")
    assert TOY.deviations("paper") == []
    assert TOY.deviations("cpu") == ["hmc_warmup 2000 instead of 10000", "hmc_samples 4000 instead of 10000"]


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown preset 'gpu'; toy has paper, smoke, cpu"):
        TOY.configs("gpu")


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=str)
def test_every_experiment_has_all_presets(experiment):
    assert {"smoke", "cpu"} <= set(experiment.changes)
    assert all(experiment.configs(preset) for preset in ("smoke", "cpu", "paper"))
