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
    with pytest.raises(ValueError, match="unknown recipe 'slow'; known are fast, paper, paper:toy"):
        as_recipe("slow")


def test_samples_grow_over_time():
    recipe = inducing.Recipe(num_steps=10, num_samples=8, early_samples=2, early_fraction=0.5)
    assert [recipe.samples_at(step) for step in (0, 4, 5, 9)] == [2, 2, 8, 8]
    assert inducing.Recipe(num_samples=8).samples_at(0) == 8


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
        ({"early_fraction": 1.5}, "early_fraction must lie between 0 and 1"),
        ({"schedule": "linear"}, "unknown schedule"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        inducing.Recipe(**changes)


def test_data_in_two_arguments_are_explained():
    with pytest.raises(TypeError, match=r"data go into one argument, fit\(network, likelihood, \(x, y\)\)"):
        as_recipe(torch.zeros(3, 1))
