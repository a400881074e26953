"""Dates: their parts, the order of day and month, and what is refused."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest

from inducing.tables.columns import column_from_json, column_to_json
from inducing.tables.columns.dates import DateColumn
from inducing.tables.errors import TableError
from inducing.tables.schema import Schema

DAYS = pd.date_range("2020-11-30", periods=100, freq="11D")


def learn(values, impute=True):
    return DateColumn.learn(pd.Series(values, name="when"), impute)


def inputs(column, values):
    encoded = column.expand(column.to_codes(pd.Series(values, name="when")))
    return dict(zip(column.encoded_names, encoded.T, strict=True))


def test_the_parts_of_a_date():
    column = learn(DAYS)
    assert column.parts == ("days", "year", "month", "weekday")
    found = inputs(column, DAYS)
    assert np.array_equal(found["when: days"], 11 * np.arange(100))
    assert np.array_equal(found["when: year"], DAYS.year)
    for part, values, cycle in (("month", DAYS.month - 1, 12), ("weekday", DAYS.day_of_week, 7)):
        np.testing.assert_allclose(found[f"when: {part}, sin"], np.sin(2 * np.pi * values / cycle), atol=1e-12)
        np.testing.assert_allclose(found[f"when: {part}, cos"], np.cos(2 * np.pi * values / cycle), atol=1e-12)
    assert column.describe() == ("date, 2020-11-30 to 2023-11-24", "days, year, month, weekday")


def test_only_parts_that_differ_are_inputs():
    assert learn(["2021-03-01", "2021-03-08"]).parts == ("days",)
    times = ["2021-03-01 06:00", "2021-03-01 18:30"]
    assert learn(times).parts == ("days", "hour")
    np.testing.assert_allclose(inputs(learn(times), times)["when: hour, sin"], [1, np.sin(2 * np.pi * 18.5 / 24)])


@pytest.mark.parametrize(
    "values",
    [
        DAYS,
        DAYS.tz_localize("Europe/Paris"),
        DAYS.to_period("D"),
        DAYS.strftime("%Y-%m-%d"),
        DAYS.strftime("%Y/%m/%d"),
        DAYS.strftime("%d.%m.%Y"),
        DAYS.strftime("%d/%m/%Y"),
        DAYS.strftime("%m/%d/%y"),
        DAYS.strftime("%Y-%m-%dT00:00:00Z"),
        [day.date() for day in DAYS],
    ],
)
def test_all_ways_to_write_dates_give_the_same(values):
    column = learn(values)
    np.testing.assert_allclose(column.to_codes(pd.Series(values)), learn(DAYS).to_codes(pd.Series(DAYS)))
    assert column_from_json(json.loads(json.dumps(column_to_json(column)))) == column


def test_the_order_is_that_of_the_training_table():
    column = learn(["13/01/2021", "02/03/2021"])
    assert column.order == "day-month-year"
    assert column.to_codes(pd.Series(["03/04/2021"])) == (datetime.date(2021, 4, 3) - datetime.date(1970, 1, 1)).days
    assert learn(["01/02/2021", "03/04/2021"]).order == "month-day-year"
    assert "month-day-year" in learn(["01/02/2021", "03/04/2021"]).describe()[0]
    assert learn(["01.02.2021", "03.04.2021"]).order == "day-month-year"
    with pytest.raises(TableError, match=r"dates \(day-month-year\), but row 1 holds '02/13/2021'"):
        learn(["13/01/2021", "02/13/2021"])


def test_missing_dates_are_the_median_with_an_indicator():
    column = learn(["2021-01-01", None, "2021-01-03", "2021-01-09"])
    found = inputs(column, ["2021-01-01", None])
    assert found["when: days"].tolist() == [0, 2]
    assert found["when is missing"].tolist() == [0, 1]
    with pytest.raises(TableError, match="'when' has 1 missing value"):
        Schema.of(pd.DataFrame({"when": ["2021-01-01", None, "2021-01-03", "2021-01-09"]}), impute=False)


def test_rows_with_the_same_label():
    values = pd.Series(["2021-01-01", None, "2021-01-03"], index=[0, 0, 0], name="when")
    assert np.isnan(learn(DAYS).to_codes(values)).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["soon"], "held dates in the training table, but row 0 holds 'soon'"),
        ([3.5], "is float64, but held dates"),
        (["2021-02-30"], "row 0 holds '2021-02-30'"),
    ],
)
def test_what_is_no_date_later(values, message):
    with pytest.raises(TableError, match=message):
        learn(DAYS).to_codes(pd.Series(values, name="when"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": []}, "parts"),
        ({"parts": ["days", "days"]}, "parts"),
        ({"parts": ["century"]}, "parts"),
        ({"order": "day"}, "order"),
        ({"first": 1e9}, "days"),
        ({"missing": -1}, "days"),
    ],
)
def test_a_file_that_is_wrong_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        column_from_json(json.loads(json.dumps(column_to_json(learn(DAYS)))) | change)


@pytest.mark.parametrize("later", [False, True])
def test_dates_that_stand_for_no_date_are_refused(later):
    dates = pd.Series(["2020-01-01", "2020-02-01", "2021-03-05", "9999-12-31"], name="day")
    column = DateColumn.learn(dates[:3], True)
    with pytest.raises(TableError, match=r"'day' has the date 9999-12-31 in row 3.*leave a cell empty"):
        column.to_codes(dates) if later else DateColumn.learn(dates, True)
