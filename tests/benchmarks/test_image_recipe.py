"""The short trials of settings for images."""

import dataclasses

from benchmarks import image_recipe


def test_a_trial_changes_the_preset():
    crops = image_recipe.config_of(image_recipe.TRIALS[1])
    assert (crops.inducing_size, crops.batch_size, crops.hidden_log_precision, crops.num_steps) == (16, 100, -4.0, 875)
    assert (crops.posterior, crops.prior, crops.channels, crops.kl_warmup_epochs) == ("global", "spatial-iw", 32, 1)


def test_the_page_shows_what_is_stored():
    second = image_recipe.TRIALS[1]
    numbers = {"training": -1.5, "held_out": -1.25, "accuracy": 50.0, "seconds": 400}
    page = image_recipe.page([dataclasses.asdict(second) | numbers])
    assert "| 16 x 16 | 100 | 0.01 | -4 | 875 | -1.500 | -1.250 | 50.0 | 400 |" in page
    assert "| 32 x 32 |" not in page
    assert image_recipe.PAGE.read_text() == image_recipe.page(image_recipe.read())
