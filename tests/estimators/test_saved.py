"""Files that version 0.1.0 saved load, with the same predictions."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import inducing

FOLDER = Path(__file__).with_name("saved")
ROWS = np.random.default_rng(0).normal(size=(40, 3))
TABLE = pd.DataFrame(ROWS, columns=["a", "b", "c"]).assign(colour=["red", "blue", "green", "blue"] * 10)


@pytest.mark.parametrize(
    ("name", "inputs", "mean"),
    [
        ("regressor", TABLE[:2], [[-0.14519795959214815], [-0.12071797645724122]]),
        (
            "classifier",
            ROWS[:2],
            [
                [0.3292068291979891, 0.2837185536830182, 0.3870746171189926],
                [0.33655212904039616, 0.2787593021240153, 0.3846885688355885],
            ],
        ),
    ],
)
def test_predictions_are_those_of_the_version_that_saved(name, inputs, mean):
    model = inducing.load(FOLDER / f"{name}.safetensors")
    np.testing.assert_allclose(model.predict_distribution(inputs).mean.numpy(), mean, rtol=1e-6)


def test_settings_are_those_of_the_version_that_saved():
    model = inducing.load(FOLDER / "regressor.safetensors")
    assert model.hidden == (4,)
    assert model.recipe.num_steps == 3
    assert [column.fill for column in model.schema.columns][-1] == "blue"
    assert inducing.load(FOLDER / "classifier.safetensors").classes_.tolist() == ["x", "y", "z"]


def test_scores_of_held_out_rows_the_bound_and_weights_of_classes_are_kept(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = inducing.BNNClassifier((3,), max_steps=20, class_weight={"a": 1.0, "b": 2.0}, random_state=0)
    model.fit(x, np.where(x[:, 0] > 0, "a", "b"), eval_set=(x, np.where(x[:, 0] > 0, "a", "b")))
    model.history_.bound = "tight-conditional ELBO"
    inducing.save(model, tmp_path / "model.safetensors")
    loaded = inducing.load(tmp_path / "model.safetensors")
    assert model.history_.held_out
    assert loaded.history_.held_out == model.history_.held_out
    assert loaded.history_.bound == "tight-conditional ELBO"
    assert loaded.get_params() == model.get_params()
