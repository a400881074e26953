"""Importances and partial dependence of a model that is known."""

import numpy as np
import pandas as pd
import pytest

from inducing.tables.explaining import REPEATS, compute_dependence, measure_importances
from inducing.tables.fitting import fit_problem, make_estimator
from inducing.tables.problem import make_problem
from inducing.tables.report import report_page
from tests.tables.examples import outcome


@pytest.fixture(scope="module")
def fitted():
    """The target depends on a number and a colour, not on `noise`, nor on dates."""
    random = np.random.default_rng(0)
    table = pd.DataFrame({"noise": random.normal(size=200), "size": random.normal(10, 2, 200).round(1)})
    table["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 500, 200), unit="D")
    table["colour $"] = random.choice(["red", "blue"], 200)
    table["price"] = (50_000 + 3000 * table["size"] + 4000 * (table["colour $"] == "red")).round()
    problem = make_problem(table, ["price"], test_fraction=0.2)
    return fit_problem(make_estimator("bnn", problem, max_steps=150, random_state=0), problem)


def test_columns_that_matter_come_first(fitted):
    importances = measure_importances(fitted)
    assert [importance.name for importance in importances[:2]] == ["size", "colour $"]
    assert all(importance.increases.shape == (REPEATS,) for importance in importances)
    assert importances[0].spread > 0
    # the error of shuffled sizes is sqrt(2) standard deviations of their effect
    assert importances[0].mean == pytest.approx(3000 * 2 * np.sqrt(2), rel=0.3)
    assert abs(importances[-1].mean) < 500


def test_curves_have_the_slope_of_the_function_and_bands(fitted):
    names = fitted.problem.encoded.schema.names
    size = compute_dependence(fitted, names.index("size"))
    slope = np.polyfit(size.values, size.mean[:, 0], 1)[0]
    assert slope == pytest.approx(3000, rel=0.1)
    assert (size.low <= size.mean).all()
    assert (size.mean <= size.high).all()
    colour = compute_dependence(fitted, names.index("colour $"))
    red, blue = (colour.mean[list(colour.values).index(code), 0] for code in (1, 0))
    assert red - blue == pytest.approx(4000, rel=0.3)


def test_the_report_writes_numbers_in_the_format_of_the_target(fitted):
    table = fitted.score_table()
    rmse = table.rows[1][1].text
    assert "e+" not in rmse
    assert rmse == f"{fitted.scores['constant']['RMSE']:.0f}"
    page = report_page(fitted, "t.csv")
    (uncertain,) = [block for block in page.blocks if getattr(block, "headings", [""])[0] == "row"]
    true = fitted.problem.y[int(uncertain.rows[0][0])]
    assert uncertain.rows[0][1] == f"{true:,.0f}"


def test_classes_have_importances_in_nats():
    importances = measure_importances(outcome("kind"))
    assert len(importances) == 3
    assert np.isfinite([importance.mean for importance in importances]).all()
    assert compute_dependence(outcome("kind"), 0).mean.sum(1) == pytest.approx(1.0)
