"""A schema and its columns: what is encoded how, and every message."""

import datetime
import json
import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch

from inducing.data.standardise import Standardiser
from inducing.tables.errors import TableError, TableWarning
from inducing.tables.schema import Schema

TABLE = pd.DataFrame(
    {
        "size": [1.5, 2.0, -3.0, 0.5],
        "colour": ["red", "blue", "red", "green"],
        "grade": pd.Categorical([2, 1, 10, 2]),
        "sold": [True, False, True, True],
    }
)
SCHEMA = Schema.of(TABLE)


def test_columns_become_numbers():
    assert SCHEMA.names == ("size", "colour", "grade", "sold")
    colours, grades = ("colour=blue", "colour=green", "colour=red"), ("grade=1", "grade=10", "grade=2")
    assert SCHEMA.encoded_names == ("size", *colours, *grades, "sold")
    expected = [
        [1.5, 0, 0, 1, 0, 0, 1, 1],
        [2.0, 1, 0, 0, 1, 0, 0, 0],
        [-3.0, 0, 0, 1, 0, 1, 0, 1],
        [0.5, 0, 1, 0, 0, 0, 1, 1],
    ]
    assert np.array_equal(SCHEMA.encode(TABLE), expected)


def test_rows_are_encoded_one_by_one():
    rows = [SCHEMA.encode(TABLE[row : row + 1]) for row in range(4)]
    assert np.array_equal(np.concatenate(rows), SCHEMA.encode(TABLE))


def test_a_schema_is_a_value():
    again = Schema.from_json(json.loads(json.dumps(SCHEMA.to_json())))
    assert again == SCHEMA
    assert hash(again) == hash(SCHEMA)
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA
    with pytest.raises(AttributeError):
        again.columns = ()
    with pytest.raises(ValueError, match="kind"):
        Schema.from_json([{"name": "x", "kind": "image", "categories": [], "fill": None}])


def test_a_category_never_seen_is_zero_everywhere():
    with pytest.warns(TableWarning, match="'colour': 4 rows .*'purple'; treated as none"):
        encoded = SCHEMA.encode(TABLE.assign(colour="purple"))
    assert not encoded[:, 1:4].any()


def test_numbers_may_be_categories_in_any_dtype():
    """A chunk of a CSV file with missing values reads whole numbers as floats."""
    expected = SCHEMA.encode(TABLE)
    for dtype in (int, float, str, object):
        assert np.array_equal(SCHEMA.encode(TABLE.assign(grade=np.array([2, 1, 10, 2]).astype(dtype))), expected)


def test_missing_values_are_imputed():
    holes = pd.DataFrame({"size": [1.0, None, 2.0, 6.0], "colour": ["red", "blue", "red", None]})
    schema = Schema.of(holes)
    assert [column.fill for column in schema.columns] == [2.0, "(missing)"]
    assert schema.encoded_names == ("size", "size is missing", "colour=(missing)", "colour=blue", "colour=red")
    assert schema.encode(holes).tolist() == [[1, 0, 0, 0, 1], [2, 1, 0, 1, 0], [2, 0, 0, 0, 1], [6, 0, 1, 0, 0]]
    # by the training table, also later; nullable dtypes too
    later = pd.DataFrame({"size": pd.array([None, 3], dtype="Int64"), "colour": [None, "blue"]})
    assert schema.encode(later).tolist() == [[2, 1, 1, 0, 0], [3, 0, 0, 1, 0]]
    nothing = pd.DataFrame({"size": [np.nan], "colour": [np.nan]})
    assert schema.encode(nothing).tolist() == [[2, 1, 1, 0, 0]]
    assert [row[2] for row in schema.describe().rows] == [
        "unchanged; 1 missing value: median 2, and an indicator",
        "one-hot; 1 missing value: a category",
    ]


def test_values_that_are_missing_only_later():
    """The training table has no input for them: a number is the median, a category is none of the known ones."""
    later = TABLE[:1].assign(size=np.nan, colour=None)
    with pytest.warns(TableWarning, match=r"'colour': 1 row .*'\(missing\)'"):
        encoded = SCHEMA.encode(later)
    assert encoded[0, :4].tolist() == [1.0, 0, 0, 0]


def test_a_column_of_an_earlier_version():
    """Version 0.1.0 had no indicators, and filled in the most frequent category."""
    entries = [
        {"name": "size", "kind": "numeric", "categories": [], "fill": 2.0},
        {"name": "colour", "kind": "categorical", "categories": ["blue", "red"], "fill": "red"},
    ]
    nothing = pd.DataFrame({"size": [np.nan], "colour": [None]})
    assert Schema.from_json(entries).encode(nothing).tolist() == [[2.0, 0, 1]]


def test_another_order_is_accepted_and_told():
    with pytest.warns(TableWarning, match="'colour', 'size' are in another order"):
        encoded = SCHEMA.encode(TABLE[["colour", "size", "grade", "sold"]])
    assert np.array_equal(encoded, SCHEMA.encode(TABLE))


def test_copies_are_reported():
    with pytest.warns(TableWarning, match="duplicate columns .*'copy = size', 'hue = colour'"):
        Schema.of(TABLE.assign(copy=TABLE["size"], hue=TABLE["colour"]))


def test_every_column_has_the_weight_of_one_number():
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "size": random.normal(3, 5, 500),
            "hole": np.where(random.random(500) < 0.2, np.nan, random.normal(size=500)),
            "colour": random.choice(["red", "blue", "green"], 500, p=[0.9, 0.09, 0.01]),
            "code": [f"code {each}" for each in random.integers(0, 100, 500)],
            "when": pd.date_range("2020-01-01", periods=500, freq="31h"),
            "sold": random.random(500) < 0.1,
        }
    )
    schema = Schema.of(table)
    inputs = schema.encode(table)
    balanced = schema.balance(Standardiser.of(inputs)).apply(inputs, torch.float64).numpy()
    assert abs(balanced.mean(0)).max() < 1e-12
    start = 0
    for column in schema.columns:
        part = balanced[:, start : start + len(column.encoded_names)]
        start += part.shape[1]
        assert part.var(0).sum() == pytest.approx(1), column.name
    # numbers by themselves are standardised, and categories keep their proportions
    assert np.allclose(balanced[:, 0], (table["size"] - table["size"].mean()) / table["size"].std(ddof=0))
    colours = balanced[:, 3:6].max(0) - balanced[:, 3:6].min(0)
    assert np.allclose(colours, colours[0])


def test_the_treatment_of_columns_as_a_table():
    described = SCHEMA.describe("title")
    assert (described.headings, described.title) == (["column", "read as", "treatment", "inputs"], "title")
    assert described.rows == [
        ["size", "number", "unchanged", "1"],
        ["colour", "text, 3 categories", "one-hot", "3"],
        ["grade", "text, 3 categories", "one-hot", "3"],
        ["sold", "number", "unchanged", "1"],
    ]


DATES = pd.date_range("2021-01-01", periods=4)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([datetime.time(hour) for hour in (1, 2, 3, 4)], "'new' holds .*time"),
        ([1j, 2, 3, 4], "'new' holds .*complex"),
        ([[1], [2], [3], [4]], "'new' holds .*list"),
        ([1, "a", 2, 3], "'new' holds .*int, str"),
        ([1, None, 3, 4], r"'new' has 1 missing value \(first in row 1\).*use Schema.of\(table, impute=True\)"),
        (["a", "b", None, None], r"'new' has 2 missing values \(first in row 2\)"),
        ([1, 2, np.inf, 4], r"'new' has infinite values \(first in row 2\)"),
    ],
)
def test_columns_that_cannot_be_used(column, message):
    with pytest.raises(TableError, match=message):
        Schema.of(TABLE.assign(new=column), impute=False)


def test_all_columns_that_cannot_be_used_are_named_at_once():
    with pytest.raises(
        TableError, match=r"^2 columns .*'parts' holds values of type list; column 'hole' has 1 missing"
    ):
        Schema.of(TABLE.assign(parts=[[1], [2], [3], [4]], hole=[1, None, 3, 4]), impute=False)


def test_durations_are_days():
    assert Schema.of(pd.DataFrame({"new": DATES - DATES[0]})).encode(
        pd.DataFrame({"new": DATES - DATES[0]})
    ).tolist() == [
        [0],
        [1],
        [2],
        [3],
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE[:0], "the table is empty: it has 0 rows and 4 columns"),
        (TABLE[[]], "the table is empty: it has 4 rows and 0 columns"),
        (pd.DataFrame(np.eye(2)), "names must be text, got 0"),
        (pd.DataFrame(np.eye(2), columns=["a", "a"]), "several columns have the name 'a'"),
    ],
)
def test_tables_that_cannot_be_used(table, message):
    with pytest.raises(TableError, match=message):
        Schema.of(table)


def test_an_array_has_no_columns():
    with pytest.raises(TypeError, match=r"DataFrame, got ndarray"):
        SCHEMA.encode(np.eye(4))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            TABLE.drop(columns=["size", "sold"]),
            "'size', 'sold' missing. It had 'size'",
        ),
        (TABLE.assign(new=1), "'new' not expected"),
        (
            TABLE.rename(columns={"size": "Size"}),
            r"'size' missing, 'Size' not expected \(did you mean 'size'\?\).*Rename",
        ),
        (
            TABLE.assign(size=["1", "2", "three", "4"]),
            "'size' was numeric in the training table, but row 2 holds 'three'",
        ),
        (TABLE.assign(size=DATES), r"'size' is datetime64\[.*\], but was numeric"),
        (TABLE.assign(size=DATES.to_period("M")), r"'size' is period\[M\], but was numeric"),
        (
            TABLE.assign(colour=[1.0, 2, 3, 4]),
            "'colour' is float64, but was text in the training table: 'blue', 'green'",
        ),
        (TABLE.assign(colour=DATES), "'colour' is datetime64.*, but was text"),
        (TABLE.assign(size=[1, np.inf, 2, 3]), "'size' has infinite values"),
        (TABLE.assign(**{f"new{i}": i for i in range(10)}), "'new7' and 2 more not expected"),
    ],
)
def test_later_tables_that_do_not_fit(table, message):
    with pytest.raises(TableError, match=message):
        SCHEMA.encode(table)


def test_categories_that_are_true_and_false_are_booleans():
    values = [True, False, True, None]
    table = pd.DataFrame({"sold": pd.Categorical(values)})
    schema = Schema.of(table, impute=True)
    assert schema.encode(table).tolist() == [[1, 0], [0, 0], [1, 0], [1, 1]]
    assert schema == Schema.of(pd.DataFrame({"sold": values}), impute=True)
    assert schema.encode(pd.DataFrame({"sold": [False, True]})).tolist() == [[0, 0], [1, 0]]


def test_many_columns_are_looked_up_once(monkeypatch):
    """The cost is linear in the number of columns: names are listed a fixed number of times."""
    schema = Schema.of(pd.DataFrame(np.arange(60.0).reshape(3, 20), columns=[f"c{k}" for k in range(20)]))
    table = pd.DataFrame(np.ones((1, 20)), columns=list(schema.names))
    names, times = schema.names, []

    def listed(self):
        times.append(None)
        return names

    monkeypatch.setattr(Schema, "names", property(listed))
    schema.encode(table)
    assert len(times) < 5


def test_memory_for_categories_is_that_of_the_result():
    values = [f"v{k}" for k in range(500)]
    table = pd.DataFrame({"code": np.random.default_rng(0).choice(values, 4000)})
    result = 4000 * table["code"].nunique() * 8
    tracemalloc.start()
    try:
        schema = Schema.of(table)
        assert tracemalloc.get_traced_memory()[1] < result / 4
        tracemalloc.reset_peak()
        encoded = schema.encode(table)
        assert tracemalloc.get_traced_memory()[1] < 1.3 * result
    finally:
        tracemalloc.stop()
    assert (encoded.sum(1) == 1).all()
