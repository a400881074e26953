"""Numbers: outliers, missing values, and what is refused in a file."""

import json

import numpy as np
import pandas as pd
import pytest

from inducing.tables.columns import column_from_json, column_to_json
from inducing.tables.columns.numeric import NumericColumn

VALUES = pd.Series(np.r_[np.random.default_rng(0).normal(size=200), 100.0, -1000.0], name="x")


def inputs(column, values):
    return column.expand(column.to_codes(pd.Series(values, name="x")))[:, 0]


def test_outliers_are_compressed_in_order():
    column = NumericColumn.learn(VALUES, impute=True)
    assert column.outliers == 2
    assert column.describe() == ("number", "2 outliers compressed")
    found = inputs(column, VALUES)
    assert np.array_equal(found[:200], VALUES[:200])
    assert np.array_equal(np.argsort(found), np.argsort(VALUES))
    reach = 4 * np.subtract(*np.quantile(VALUES, [0.75, 0.25]))
    centre = VALUES.median()
    assert found[200] == pytest.approx(centre + reach * (2 - reach / (100 - centre)))
    assert found[201] == pytest.approx(centre - reach * (2 - reach / (1000 + centre)))
    # without a jump
    near = centre + reach * np.array([1 - 1e-9, 1 + 1e-9])
    assert np.ptp(inputs(column, near)) < 1e-6


def test_outliers_of_later_tables_too():
    column = NumericColumn.learn(VALUES[:200], impute=True)
    assert column.describe() == ("number", "unchanged")
    assert inputs(column, [1e300])[0] <= column.centre + 2 * column.reach


@pytest.mark.parametrize("values", [[0.0] * 80 + [5.0] * 10, [0.0, 1.0] * 5 + [1e6], [1.0, 1e308, -1e308] * 10])
def test_without_an_interquartile_range_nothing_is_compressed(values):
    column = NumericColumn.learn(pd.Series(values, name="x"), impute=False)
    assert column.reach is None
    assert np.array_equal(inputs(column, values), values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reach": 0.0}, "compressed"),
        ({"reach": float("inf")}, "compressed"),
        ({"centre": float("nan")}, "compressed"),
        ({"fill": float("nan")}, "missing"),
        ({"fill": None, "missing": 3}, "missing"),
        ({"missing": -1}, "missing"),
        ({"comma": "none"}, "comma"),
        ({"unit": 3}, "unit"),
    ],
)
def test_a_file_that_is_wrong_is_refused(change, message):
    column = NumericColumn.learn(VALUES, impute=True)
    entry = json.loads(json.dumps(column_to_json(column)))
    assert column_from_json(entry) == column
    with pytest.raises(ValueError, match=message):
        column_from_json(entry | change)
