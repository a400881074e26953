"""From a table to a problem: what is predicted, as what, and on which rows."""

import numpy as np
import pandas as pd
import pytest

from inducing.tables.errors import TableError
from inducing.tables.problem import make_problem
from tests.tables.examples import make_table

TABLE = make_table()


@pytest.mark.parametrize(
    ("target", "task", "reason"),
    [
        ("price", "regression", "'price' is numeric"),
        ("kind", "classification", "'kind' is text"),
        ("grade", "classification", "'grade' has 3 distinct whole numbers"),
        ("sold", "classification", "'sold' is true or false"),
        ("count", "regression", "'count' is numeric"),
        ("half", "regression", "'half' is numeric"),
    ],
)
def test_the_target_decides_the_task(target, task, reason):
    table = TABLE.assign(sold=TABLE["size"] > 40, count=np.arange(60) % 20, half=(np.arange(60) % 2) / 2)
    problem = make_problem(table, [target])
    assert (problem.task, problem.reason) == (task, reason)
    assert target not in problem.inputs
    assert len(problem.y) == 60


def test_the_task_can_be_asked_for():
    assert make_problem(TABLE, ["grade"]).y.dtype == np.int64
    numbers = make_problem(TABLE, ["grade"], "regression")
    assert numbers.y.dtype == float
    assert numbers.reason == "requested"
    assert (
        make_problem(TABLE.assign(grade=TABLE["grade"].astype(float)), ["grade"], "classification").y.dtype == np.int64
    )


def test_several_targets_are_columns():
    problem = make_problem(TABLE, ["weight", "price"], exclude=["kind", "grade"])
    assert np.array_equal(problem.y, TABLE[["weight", "price"]].to_numpy())
    assert list(problem.inputs.columns) == list(TABLE.columns[:3])


@pytest.mark.filterwarnings("ignore::inducing.TableWarning")
@pytest.mark.parametrize("target", ["price", "kind"])
@pytest.mark.parametrize("fraction", [0.001, 0.1, 0.25, 0.9])
def test_rows_are_for_training_or_for_testing(target, fraction):
    problem = make_problem(TABLE, [target], test_fraction=fraction)
    assert np.array_equal(np.sort(np.r_[problem.train, problem.test]), np.arange(60))
    kept = 1 if target == "price" else 2
    assert len(problem.test) == min(max(1, round(60 * fraction)), 60 - kept)
    assert len(np.unique(problem.y[problem.train])) >= kept


def test_no_rows_for_testing():
    problem = make_problem(TABLE, ["price"], test_fraction=0)
    assert np.array_equal(problem.train, np.arange(60))
    assert not len(problem.test)


def test_the_seed_decides_the_test_rows():
    first, again, other = (make_problem(TABLE, ["price"], test_fraction=0.3, seed=seed).test for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_test_rows_are_spread_over_classes():
    """Also of a class of one row, which is then for training."""
    labels = ["a"] * 80 + ["b"] * 19 + ["c"]
    problem = make_problem(pd.DataFrame({"x": range(100), "y": labels}), ["y"], test_fraction=0.2)
    values, counts = np.unique(problem.y[problem.test], return_counts=True)
    assert dict(zip(values, counts, strict=True)) == {"a": 16, "b": 4}


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        (TABLE, {"targets": ["cost"]}, "no column 'cost'.* has 'size', 'colour'"),
        (TABLE, {"targets": ["pirce"]}, r"no column 'pirce'.*'price'"),
        (TABLE, {"targets": ["price"], "exclude": ["id"]}, "no column 'id'"),
        (TABLE, {"targets": []}, "no target"),
        (TABLE, {"targets": ["price", "price"]}, "a column is named twice"),
        (TABLE, {"targets": ["price"], "exclude": ["price"]}, "a column is named twice"),
        (TABLE[["price"]], {"targets": ["price"]}, "no input columns"),
        (TABLE, {"targets": ["price"], "test_fraction": 1.5}, "at least 0 and below 1, got 1.5"),
        (TABLE[:9], {"targets": ["price"]}, "the table has 9 rows; at least 10 are needed"),
        (TABLE[:0], {"targets": ["price"]}, "the table has 0 rows"),
        (TABLE, {"targets": ["price"], "likelihood": "categorial"}, "did you mean 'categorical'"),
        (TABLE, {"targets": ["price"], "task": "ranking"}, "unknown task 'ranking'"),
        (TABLE, {"targets": ["kind", "grade"], "task": "classification"}, "one target"),
        (
            TABLE,
            {"targets": ["kind"], "task": "regression"},
            "'kind' is text",
        ),
        (TABLE, {"targets": ["price"], "task": "classification"}, "fractions"),
        (TABLE.assign(kind="dear"), {"targets": ["kind"]}, "one class, 'dear'"),
        (
            TABLE.assign(price=TABLE["price"].mask(TABLE.index == 7)),
            {"targets": ["price"]},
            r"target 'price' has 1 missing value \(first in row 7\)",
        ),
        (
            TABLE.assign(price=1.5),
            {"targets": ["size", "price"]},
            "'price' is constant",
        ),
        (TABLE.assign(price=np.inf), {"targets": ["price"]}, "'price' has infinite values"),
        (TABLE.assign(price="2021-03-04"), {"targets": ["price"]}, "'price' holds dates"),
        (
            TABLE.assign(price=["$5"] * 59 + ["?"]),
            {"targets": ["price"]},
            r"'price' has missing values \('\?' in row 59",
        ),
        (TABLE, {"targets": ["price"], "include": ["id"]}, "no column 'id' to include"),
        (TABLE, {"targets": ["price"], "target_transform": "root"}, "unknown target_transform 'root'"),
        (TABLE.assign(price=-TABLE["price"]), {"targets": ["price"], "target_transform": "log"}, "positive"),
        (
            TABLE.assign(kind=[f"name {row}" for row in range(60)]),
            {"targets": ["kind"]},
            "60 categories in 60 rows",
        ),
    ],
)
def test_what_cannot_be_a_problem(table, arguments, message):
    with pytest.raises((TableError, ValueError), match=message):
        make_problem(table, **arguments)


@pytest.mark.parametrize("dtype", ["int64", "Int64", "uint64"])
def test_large_whole_numbers_stay_apart(dtype):
    """As floats they would be one class."""
    labels = pd.Series([2**53, 2**53 + 1] * 10, dtype=dtype)
    problem = make_problem(pd.DataFrame({"x": range(20), "y": labels}), ["y"])
    assert problem.reason == "'y' has 2 distinct whole numbers"
    assert np.unique(problem.y).tolist() == [2**53, 2**53 + 1]


def test_categories_that_are_true_and_false():
    table = pd.DataFrame({"x": range(20), "y": pd.Categorical([True, False] * 10)})
    problem = make_problem(table, ["y"])
    assert (problem.task, problem.y.dtype) == ("classification", bool)
    assert make_problem(table, ["y"], "regression").y.tolist() == [1.0, 0.0] * 10


def test_names_must_differ():
    table = pd.DataFrame(np.zeros((20, 3)), columns=["x", "y", "y"])
    with pytest.raises(TableError, match="several columns"):
        make_problem(table, ["y"])


def test_a_test_fraction_that_leaves_almost_nothing():
    table = pd.DataFrame({"x": np.arange(60.0) % 7, "y": np.arange(60.0) ** 0.5})
    with pytest.raises(ValueError, match=r"a test fraction of 0\.99 leaves 1 training row of 60"):
        make_problem(table, ["y"], test_fraction=0.99)
