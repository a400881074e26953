import numpy as np
import pytest
import torch

import inducing
from inducing.inference.recipes import FAST, PAPER, as_recipe


def test_the_papers_settings():
    toy, linear, uci = (PAPER[name] for name in ("toy", "linear", "uci"))
    assert (toy.num_steps, toy.learning_rate, toy.num_samples) == (5000, 1e-2, 10)
    assert (linear.num_steps, linear.num_samples) == (40_000, 1)
    assert (uci.num_steps, uci.batch_size) == (10_000, 10_000)
    assert {recipe.schedule for recipe in PAPER.values()} == {"constant"}


def test_names():
    assert as_recipe("fast") is FAST
    assert as_recipe("paper:toy") is PAPER["toy"]
    own = inducing.Recipe(num_steps=3)
    assert as_recipe(own) is own
    with pytest.raises(ValueError, match="unknown recipe 'slow'"):
        as_recipe("slow")


def test_samples_grow_over_time():
    recipe = inducing.Recipe(num_steps=10, num_samples=8, early_samples=2, early_fraction=0.5)
    assert [recipe.samples_at(step) for step in (0, 4, 5, 9)] == [2, 2, 8, 8]
    assert inducing.Recipe(num_samples=8).samples_at(0) == 8


def test_a_cosine_schedule_decreases_from_the_learning_rate_to_zero():
    recipe = inducing.Recipe(num_steps=10, learning_rate=0.2, schedule="cosine")
    assert [recipe.learning_rate_at(step) for step in (0, 5, 10)] == pytest.approx([0.2, 0.1, 0.0])


def test_constant_schedules_and_functions():
    assert inducing.Recipe(num_steps=10, learning_rate=0.2, schedule="constant").learning_rate_at(7) == 0.2
    falling = inducing.Recipe(num_steps=10, learning_rate=0.2, schedule=lambda progress: 1 - progress)
    assert falling.learning_rate_at(7) == pytest.approx(0.06)


def test_the_warm_up_is_that_of_the_paper():
    """0 for the first ten epochs, 0.1 for the next ten, ..., 1 from the hundredth on."""
    recipe = inducing.Recipe(kl_warmup_epochs=100, temperature=0.5)
    found = [recipe.temperature_at(3 * epoch, steps_per_epoch=3) for epoch in (0, 9, 10, 19, 20, 99, 100, 500)]
    assert found == pytest.approx([0, 0, 0.05, 0.05, 0.1, 0.45, 0.5, 0.5])
    assert inducing.Recipe(temperature=0.5).temperature_at(0, steps_per_epoch=3) == 0.5


def test_a_warm_up_as_a_fraction_of_the_steps():
    recipe = inducing.Recipe(kl_warmup_fraction=0.4, temperature=0.5, num_steps=50)
    assert recipe.warmup_steps(steps_per_epoch=3) == 20
    found = [recipe.temperature_at(step, steps_per_epoch=3) for step in (0, 1, 2, 10, 19, 20, 49)]
    assert found == pytest.approx([0, 0, 0.05, 0.25, 0.45, 0.5, 0.5])
    longer = recipe.replace(num_steps=100)
    assert longer.temperature_at(20, steps_per_epoch=3) == 0.25
    assert recipe.replace(schedule="constant").depends_on_num_steps
    assert "kl_warmup_fraction" not in inducing.Recipe().identity()
    assert recipe.identity()["kl_warmup_fraction"] == 0.4


def test_numbers_are_whole():
    assert type(inducing.Recipe(kl_warmup_epochs=np.int64(1)).kl_warmup_epochs) is int
    with pytest.raises(TypeError, match="num_steps must be a whole number, got '100'"):
        inducing.Recipe(num_steps="100")


def test_a_recipe_prints_all_its_settings():
    shown = str(FAST)
    assert all(f"{name}  {value}" in shown for name, value in vars(FAST).items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_steps": 0}, "num_steps must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"num_samples": -1}, "num_samples must be at least 1"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"early_fraction": 1.5}, "early_fraction"),
        ({"schedule": "linear"}, "unknown schedule"),
        ({"kl_warmup_fraction": -0.1}, "kl_warmup_fraction must be between 0 and 1"),
        ({"kl_warmup_fraction": 0.1, "kl_warmup_epochs": 2}, "not both"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        inducing.Recipe(**changes)


def test_data_in_two_arguments_are_explained():
    with pytest.raises(TypeError, match=r"fit\(network, likelihood, \(x, y\)\)"):
        as_recipe(torch.zeros(3, 1))
