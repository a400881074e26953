"""Predictions of a table in chunks equal those of the estimator, whatever the chunks."""

import io

import numpy as np
import pandas as pd
import pytest

import inducing
from inducing.tables.errors import TableError, TableWarning
from inducing.tables.fitting import fit_problem, make_estimator
from inducing.tables.predicting import TableModel, predict_table
from inducing.tables.problem import make_problem
from tests.tables.examples import INPUTS, make_table, outcome

TABLE = make_table()


def model(*targets, excluded=()):
    return TableModel(outcome(*targets).estimator, targets, excluded)


def predicted(model, table, path, **arguments):
    """Write the table, predict it, and read what was written."""
    table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path)
    out = io.BytesIO()
    rows = predict_table(model, path, out, **arguments)
    written = pd.read_csv(io.BytesIO(out.getvalue()))
    assert len(written) == rows
    return written


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("chunk_rows", [7, 1000])
def test_numbers(name, chunk_rows, tmp_path):
    estimator, inputs = outcome("price").estimator, TABLE[list(INPUTS)]
    found = predicted(model("price"), inputs, tmp_path / name, chunk_rows=chunk_rows)
    mean, std = estimator.predict(inputs, return_std=True)
    distribution = estimator.predict_distribution(inputs)
    expected = {
        "price_mean": mean,
        "price_std": std,
        "price_aleatoric_std": distribution.aleatoric[:, 0].sqrt().numpy(),
        "price_epistemic_std": distribution.epistemic[:, 0].sqrt().numpy(),
    }
    levels = zip(("05", "50", "95"), estimator.predict_quantiles(inputs, [0.05, 0.5, 0.95]), strict=True)
    expected |= {f"price_q{level}": values for level, values in levels}
    assert list(found) == list(expected)
    for column, values in expected.items():
        np.testing.assert_allclose(found[column], values, rtol=1e-9)
    np.testing.assert_allclose(
        found["price_std"] ** 2, found["price_aleatoric_std"] ** 2 + found["price_epistemic_std"] ** 2
    )


def test_several_targets(tmp_path):
    found = predicted(model("price", "weight"), TABLE[list(INPUTS)], tmp_path / "t.csv")
    np.testing.assert_allclose(
        found[["price_mean", "weight_mean"]], outcome("price", "weight").estimator.predict(TABLE[list(INPUTS)])
    )


@pytest.mark.parametrize("target", ["kind", "grade"])
def test_classes(target, tmp_path):
    estimator, inputs = outcome(target).estimator, TABLE[list(INPUTS)]
    found = predicted(model(target), inputs, tmp_path / "t.csv", chunk_rows=11)
    labels = estimator.classes_.tolist()
    assert list(found) == [f"{target}_class", *(f"{target}={label}" for label in labels)]
    assert found[f"{target}_class"].tolist() == estimator.predict(inputs).tolist()
    np.testing.assert_allclose(found.iloc[:, 1:], estimator.predict_proba(inputs), rtol=1e-9)


def test_targets_and_excluded_columns_are_not_looked_at(tmp_path):
    table = TABLE[[*INPUTS, "price"]].assign(price=None, id=[f"r{row}" for row in range(60)])
    found = predicted(model("price", excluded=("id",)), table, tmp_path / "t.csv", keep=["id"], chunk_rows=50)
    assert found["id"].tolist() == table["id"].tolist()
    assert list(found)[:2] == ["id", "price_mean"]
    with pytest.raises(TableError, match=r"'id' not expected"):
        predicted(model("price"), table, tmp_path / "t.csv")
    again = predicted(model("price"), table, tmp_path / "t.csv", keep=["id"], exclude=["id"])
    pd.testing.assert_frame_equal(again, found)
    with pytest.raises(TableError, match="no column 'ID' to exclude"):
        predicted(model("price"), table, tmp_path / "t.csv", exclude=["ID"])


def test_imputed_values_are_told(tmp_path):
    """Once for each column, after the last chunk."""
    table = TABLE[list(INPUTS)].assign(size=TABLE["size"].where(TABLE.index > 2))
    problem = make_problem(TABLE[[*INPUTS, "price"]], ["price"], impute=True)
    estimator = make_estimator("bnn", problem, max_steps=3, random_state=0)
    filling = TableModel(fit_problem(estimator, problem).estimator, ("price",))
    with pytest.warns(TableWarning, match="column 'size': 3 missing values imputed") as told:
        predicted(filling, table, tmp_path / "t.csv", chunk_rows=2)
    assert len(told) == 1


def test_categories_that_look_like_numbers_stay_text_in_every_chunk(tmp_path):
    """A chunk of 01 and 02 would be read as 1 and 2."""
    table = pd.DataFrame({"code": ["01", "x1"] * 10 + ["02", "01"] * 10, "y": np.arange(40.0) % 7.5})
    problem = make_problem(table, ["y"])
    estimator = inducing.BNNRegressor((), max_steps=3, n_samples=5, num_inducing=3, random_state=0)
    estimator.fit(problem.inputs, problem.y)
    coded = TableModel(estimator, ("y",))
    found = predicted(coded, problem.inputs, tmp_path / "t.csv", chunk_rows=20)
    np.testing.assert_allclose(found["y_mean"], estimator.predict(problem.inputs))
    assert found["y_mean"].round(9).nunique() == 3


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize(
    ("value", "message"),
    [("large", "row 25 holds 'large'"), (np.inf, "first in row 25")],
)
def test_rows_are_named_as_in_the_whole_table(name, value, message, tmp_path):
    inputs = TABLE[list(INPUTS)].copy()
    inputs["size"] = inputs["size"].astype(object if isinstance(value, str) and name == "t.csv" else float)
    if isinstance(value, str) and name == "t.parquet":
        inputs["size"] = inputs["size"].astype(str)
    inputs.loc[25, "size"] = value
    with pytest.raises(TableError, match=f"'size' .*{message}"):
        predicted(model("price"), inputs, tmp_path / name, chunk_rows=10)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_table_without_rows(name, tmp_path):
    with pytest.raises(TableError, match="no rows"):
        predicted(model("price"), TABLE[list(INPUTS)][:0], tmp_path / name)


def test_columns_to_keep(tmp_path):
    with pytest.raises(TableError, match="no column 'id' to keep"):
        predicted(model("price"), TABLE[list(INPUTS)], tmp_path / "t.csv", keep=["id"])
    table = TABLE[list(INPUTS)].assign(price_std=1)
    with pytest.raises(TableError, match="'price_std'"):
        predicted(model("price", excluded=("price_std",)), table, tmp_path / "t.csv", keep=["price_std"])


def test_a_later_chunk_may_have_any_text(tmp_path):
    """Only the beginning of a table decides whether a column of numbers was given for one of text."""
    table = TABLE[list(INPUTS)].assign(colour=["red"] * 50 + ["7"] * 10)
    with pytest.warns(TableWarning, match="'colour': 10 rows"):
        assert len(predicted(model("price"), table, tmp_path / "t.csv", chunk_rows=5)) == 60
    with pytest.raises(TableError, match="'colour' is numeric"):
        predicted(model("price"), table.assign(colour="7"), tmp_path / "t.csv")


def test_the_first_unseen_categories_are_named(tmp_path):
    """Those of all chunks, at most three."""
    table = TABLE[list(INPUTS)].assign(colour=["red"] * 50 + ["green", "pink", "green", "grey", "teal"] * 2)
    with pytest.warns(TableWarning, match="'colour': 10 rows .*'green', 'pink', 'grey';"):
        predicted(model("price"), table, tmp_path / "t.csv", chunk_rows=2)


@pytest.mark.parametrize("values", [("true", "false", "maybe"), ("TRUE", "FALSE", "?")])
def test_text_is_text_in_every_chunk(values, tmp_path):
    """A chunk with `true` and `false` only looks like a column of booleans."""
    table = pd.DataFrame({"x": np.arange(30.0), "answer": np.repeat(values, 10), "y": np.arange(30.0) ** 2})
    problem = make_problem(table, ["y"])
    estimator = make_estimator("bnn", problem, max_steps=2, n_samples=5, num_inducing=5, random_state=0)
    fitted = TableModel(fit_problem(estimator, problem).estimator, ("y",))
    whole, parts = (predicted(fitted, table, tmp_path / "t.csv", chunk_rows=rows) for rows in (1000, 5))
    pd.testing.assert_frame_equal(parts, whole)


def test_kept_columns_are_copied_as_they_stand(tmp_path):
    rows = TABLE[list(INPUTS)][:3].assign(id=["007", "NA", "1.50"], gap=["1", "", "2"])
    rows.to_csv(tmp_path / "new.csv", index=False)
    out = io.BytesIO()
    predict_table(model("price"), tmp_path / "new.csv", out, ["gap", "id"], ["id", "gap"], chunk_rows=2)
    lines = [line.split(",")[:2] for line in out.getvalue().decode().splitlines()]
    assert lines == [["gap", "id"], ["1", "007"], ["", "NA"], ["2", "1.50"]]
