"""A schema and its columns: what is encoded how, and every message."""

import datetime
import json
import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest

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
        Schema.from_json([{"name": "x", "kind": "date", "categories": [], "fill": None}])


def test_a_category_never_seen_is_zero_everywhere():
    with pytest.warns(TableWarning, match="'colour': 4 rows .*'purple'; treated as none"):
        encoded = SCHEMA.encode(TABLE.assign(colour="purple"))
    assert not encoded[:, 1:4].any()


def test_numbers_may_be_categories_in_any_dtype():
    """A chunk of a CSV file with missing values reads whole numbers as floats."""
    expected = SCHEMA.encode(TABLE)
    for dtype in (int, float, str, object):
        assert np.array_equal(SCHEMA.encode(TABLE.assign(grade=np.array([2, 1, 10, 2]).astype(dtype))), expected)


def test_missing_values_are_imputed_on_request():
    holes = pd.DataFrame({"size": [1.0, None, 2.0, 6.0], "colour": ["red", "blue", "red", None]})
    schema = Schema.of(holes, impute=True)
    assert [column.fill for column in schema.columns] == [2.0, "red"]
    filled = holes.assign(size=[1.0, 2.0, 2.0, 6.0], colour=["red", "blue", "red", "red"])
    assert np.array_equal(schema.encode(holes), schema.encode(filled))
    # by the training table, also later; nullable dtypes too
    later = pd.DataFrame({"size": pd.array([None, 3], dtype="Int64"), "colour": [None, "blue"]})
    assert schema.encode(later).tolist() == [[2.0, 0, 1], [3.0, 1, 0]]
    nothing = pd.DataFrame({"size": [np.nan], "colour": [np.nan]})
    assert schema.encode(nothing).tolist() == [[2.0, 0, 1]]


def test_another_order_is_accepted_and_told():
    with pytest.warns(TableWarning, match="'colour', 'size' are in another order"):
        encoded = SCHEMA.encode(TABLE[["colour", "size", "grade", "sold"]])
    assert np.array_equal(encoded, SCHEMA.encode(TABLE))


def test_columns_that_tell_nothing_are_reported():
    with pytest.warns(TableWarning, match="constant columns .*'a', 'b'"):
        Schema.of(TABLE.assign(a=1.0, b="x"))
    with pytest.warns(TableWarning, match="duplicate columns .*'copy = size', 'hue = colour'"):
        Schema.of(TABLE.assign(copy=TABLE["size"], hue=TABLE["colour"]))


DATES = pd.date_range("2021-01-01", periods=4)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            DATES,
            r"'new' holds dates.*pandas\.to_datetime\(table\['new'\]\)",
        ),
        (DATES - DATES[0], "'new' holds dates"),
        (DATES.to_period("M"), "'new' holds dates"),
        (DATES.astype(str), "'new' holds dates"),
        (["4/3/2021", "12/03/2021 10:30", "04.03.21", None], "'new' holds dates"),
        ([datetime.date(2021, 1, day) for day in (1, 2, 3, 4)], "'new' holds dates"),
        ([1j, 2, 3, 4], "'new' holds .*complex"),
        ([[1], [2], [3], [4]], "'new' holds .*list"),
        ([1, "a", 2, 3], "'new' holds .*int, str"),
        ([1, None, 3, 4], r"'new' has 1 missing value \(first in row 1\).*use Schema.of\(table, impute=True\)"),
        (["a", "b", None, None], r"'new' has 2 missing values \(first in row 2\)"),
        ([1, 2, np.inf, 4], r"'new' has infinite values \(first in row 2\)"),
        ([None] * 4, "'new' has no values"),
    ],
)
def test_columns_that_cannot_be_used(column, message):
    with pytest.raises(TableError, match=message):
        Schema.of(TABLE.assign(new=column))


def test_all_columns_that_cannot_be_used_are_named_at_once():
    with pytest.raises(TableError, match=r"^2 columns .*'when' holds dates; column 'hole' has 1 missing"):
        Schema.of(TABLE.assign(when=DATES, hole=[1, None, 3, 4]))


def test_text_is_refused():
    with pytest.raises(TableError, match="'name' looks like free text: it has 60 categories in 60 rows"):
        Schema.of(pd.DataFrame({"name": [f"name {row}" for row in range(60)]}))


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
        (TABLE.assign(size=[1, np.nan, 2, 3]), "'size' has 1 missing value "),
        (TABLE.assign(size=[1, np.inf, 2, 3]), "'size' has infinite values"),
        (TABLE.assign(**{f"new{i}": i for i in range(10)}), "'new7' and 2 more not expected"),
    ],
)
def test_later_tables_that_do_not_fit(table, message):
    with pytest.raises(TableError, match=message):
        SCHEMA.encode(table)


def test_a_stray_text_among_numbers_is_named():
    frame = pd.DataFrame({"size": [str(i * 1.5) for i in range(59)] + ["?"], "y": range(60)})
    with pytest.raises(TableError, match=r"'size' holds numbers and text, e\.g\. '\?' in row 59"):
        Schema.of(frame)


def test_categories_that_are_true_and_false_are_booleans():
    values = [True, False, True, None]
    table = pd.DataFrame({"sold": pd.Categorical(values)})
    schema = Schema.of(table, impute=True)
    assert schema.encode(table).ravel().tolist() == [1, 0, 1, 1]
    assert schema == Schema.of(pd.DataFrame({"sold": values}), impute=True)
    assert schema.encode(pd.DataFrame({"sold": [False, True]})).ravel().tolist() == [0, 1]


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
