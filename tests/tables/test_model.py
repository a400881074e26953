"""The model file of a table."""

import pytest
import torch

import inducing
from inducing.tables.predicting import TableModel
from tests.tables.examples import INPUTS, make_table, outcome


def test_round_trip(tmp_path):
    estimator = outcome("price", "weight").estimator
    TableModel(estimator, ("price", "weight"), ("id",)).save(tmp_path / "m.safetensors")
    again = TableModel.load(tmp_path / "m.safetensors")
    assert (again.targets, again.excluded) == (("price", "weight"), ("id",))
    rows = make_table()[list(INPUTS)]
    assert (again.estimator.predict(rows) == estimator.predict(rows)).all()
    # for Python it is a dictionary
    assert (inducing.load(tmp_path / "m.safetensors")["estimator"].predict(rows) == estimator.predict(rows)).all()


@pytest.mark.parametrize(
    ("targets", "names"), [(("price",), ("y",)), (("price", "weight"), ("y1", "y2")), (("kind",), ("y",))]
)
def test_an_estimator_by_itself_will_do(targets, names, tmp_path):
    inducing.save(outcome(*targets).estimator, tmp_path / "m.safetensors")
    assert TableModel.load(tmp_path / "m.safetensors").targets == names


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (inducing.Gaussian(), "a Gaussian, not an estimator"),
        ({"estimator": torch.zeros(3)}, "a dict, not an estimator"),
    ],
)
def test_other_models(contents, message, tmp_path):
    inducing.save(contents, tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=message):
        TableModel.load(tmp_path / "m.safetensors")


def test_names_that_do_not_fit(tmp_path):
    estimator = outcome("price").estimator
    inducing.save({"estimator": estimator, "targets": ["a", "b"]}, tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="2 targets"):
        TableModel.load(tmp_path / "m.safetensors")
    inducing.save({"estimator": estimator, "targets": ["a"], "excluded": [1]}, tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="excluded"):
        TableModel.load(tmp_path / "m.safetensors")
