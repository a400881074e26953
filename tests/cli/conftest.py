"""A folder with a small table, and a model that was fitted to it."""

import pytest

from inducing.tables.predicting import TableModel
from tests.cli.commands import TABLE
from tests.tables.examples import INPUTS, outcome


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TABLE[[*INPUTS, "price"]].to_csv("t.csv", index=False)
    return tmp_path


@pytest.fixture
def model(here):
    TableModel(outcome("price").estimator, ("price",)).save("m.safetensors")
    return here / "m.safetensors"
