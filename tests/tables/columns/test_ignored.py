"""Columns that are left out, and that it is told."""

import numpy as np
import pandas as pd
import pytest

import inducing
from inducing.tables.errors import TableError, TableWarning
from inducing.tables.schema import Schema, learn_schema

SIZE = np.random.default_rng(0).normal(size=60)
TABLE = pd.DataFrame({"size": SIZE})


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (range(60), "row numbers"),
        (np.random.default_rng(0).permutation(60) + 1000, "row numbers"),
        ([f"name {row}" for row in range(60)], "each row has a text of its own"),
        ([f"name {row % 55}" for row in range(60)], "free text: 55 different texts in 60 rows"),
        (1.5, "constant"),
        ("same", "constant"),
        (["2021-01-01"] * 60, "constant"),
        (None, "no values"),
        (np.nan, "no values"),
    ],
)
def test_what_is_left_out(column, reason):
    table = TABLE.assign(new=column)
    with pytest.warns(TableWarning, match=rf"left out: 'new' \({reason}\)"):
        schema = Schema.of(table)
    assert schema.encoded_names == ("size",)
    assert schema.describe().rows[1] == ["new", "left out", reason, "0"]
    assert Schema.from_json(schema.to_json()) == schema
    # later tables may have it or not, with any values
    for later in (table, TABLE, TABLE.assign(new="anything")):
        assert np.array_equal(schema.encode(later), SIZE[:, None])


@pytest.mark.parametrize(
    "column",
    [
        # not consecutive, not whole, repeated, few rows
        np.arange(60) * 2,
        np.arange(60) + 0.5,
        np.arange(60) // 2,
        [f"name {row % 19}" for row in range(60)],
        # constant, but for a missing value
        [None] + [1.0] * 59,
    ],
)
def test_what_is_not_left_out(column):
    assert len(Schema.of(TABLE.assign(new=column)).encoded_names) > 1


def test_row_numbers_can_be_included_and_are_used_alone():
    table = TABLE.assign(day=range(60))
    assert learn_schema(table, include=["day"]).schema.encoded_names == ("size", "day")
    assert Schema.of(table[["day"]]).encoded_names == ("day",)


def test_something_must_be_left():
    with pytest.raises(TableError, match=r"no column can be used: 'a' \(constant\); 'b' \(no values\)"):
        Schema.of(pd.DataFrame({"a": [1, 1], "b": [None, None]}))


def test_estimators_leave_columns_out():
    table = TABLE.assign(colour=["red", "blue"] * 30, name=[f"name {row}" for row in range(60)])
    model = inducing.BNNRegressor(max_steps=2, num_inducing=5, n_samples=3, random_state=0)
    with pytest.warns(TableWarning, match="left out: 'name'"):
        model.fit(table, SIZE)
    assert np.array_equal(model.predict(table), model.predict(table.drop(columns="name")))
