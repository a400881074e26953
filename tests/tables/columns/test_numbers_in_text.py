"""Numbers that are written as text."""

import numpy as np
import pandas as pd
import pytest

from inducing.tables.columns.numbers_in_text import find_notation, parse_numbers
from inducing.tables.errors import TableError
from inducing.tables.schema import Schema


@pytest.mark.parametrize(
    ("texts", "numbers", "unit"),
    [
        (["1,250", "3", "12,000,000.5"], [1250, 3, 12000000.5], ""),
        (["12 kg", "7.5kg", " 3 kg "], [12, 7.5, 3], "kg"),
        (["$3.50", "$1,000", "-$2", "$-2"], [3.5, 1000, -2, -2], "$"),
        (["3.50 €", "€4"], [3.5, 4], "€"),
        (["EUR 3", "EUR 1,000.25"], [3, 1000.25], "EUR"),
        (["45%", "0.5 %", "-3%"], [45, 0.5, -3], "%"),
        (["1.5e3", "2E-2", "?"], [1500, 0.02, np.nan], ""),
        (["20 °C", "-5.5 °C"], [20, -5.5], "°C"),
        (["100 m²", "80 m²", "unknown"], [100, 80, np.nan], "m²"),
        (["12 km/h", "3 km/h", "-"], [12, 3, np.nan], "km/h"),
        (["3,5", "1.250,75", "12"], [3.5, 1250.75, 12], ""),
        (["1 250", "1\u00a0000 000.5"], [1250, 1000000.5], ""),
        (["−5", "+3.5"], [-5, 3.5], ""),
    ],
)
def test_one_notation_of_a_column(texts, numbers, unit):
    column = pd.Series(texts)
    found, comma = find_notation(column)
    assert found == unit
    assert np.array_equal(parse_numbers(column, comma).numbers, numbers, equal_nan=True)


@pytest.mark.parametrize(
    "texts",
    [
        ["12 kg", "500 g"],
        ["1st", "2nd", "3rd"],
        ["A1", "B2"],
        ["red", "blue"],
        ["10:30", "11:45"],
        ["555-1234", "555-9876"],
        ["1-5", "6-10"],
        ["?", "-"],
        # digits that are declared as text
        ["1", "2", "3"],
        ["02139", "10115"],
    ],
)
def test_what_remains_text(texts):
    assert find_notation(pd.Series(texts)) is None


def test_many_digits_are_numbers():
    assert find_notation(pd.Series([str(number) for number in range(30)])) == ("", "thousands")


def test_a_table_with_units():
    table = pd.DataFrame({"weight": ["12 kg", "1,250 kg", "?", "3 kg"], "share": ["45%", "5%", "10%", "20%"]})
    schema = Schema.of(table)
    assert schema.encoded_names == ("weight", "weight is missing", "share")
    assert schema.encode(table).tolist() == [[12, 0, 45], [1250, 0, 5], [12, 1, 10], [3, 0, 20]]
    treatments = schema.describe().rows
    assert treatments[0] == ["weight", "number in kg", "unchanged; 1 missing value: median 12, and an indicator", "2"]
    assert treatments[1][1] == "number in %"
    # plain numbers are in the same unit
    assert schema.encode(pd.DataFrame({"weight": [2.5], "share": ["3"]})).tolist() == [[2.5, 0, 3]]
    for weight, message in (("5 g", "was in 'kg' in the training table, but row 0 holds '5 g'"), ("heavy", "'heavy'")):
        with pytest.raises(TableError, match=message):
            schema.encode(pd.DataFrame({"weight": [weight], "share": ["3%"]}))


def test_a_stray_text_among_numbers_is_named():
    texts = [str(row * 1.5) for row in range(59)]
    with pytest.raises(TableError, match=r"'size' holds numbers and text, e\.g\. 'tall' in row 59.*missing value"):
        Schema.of(pd.DataFrame({"size": [*texts, "tall"]}))
    assert Schema.of(pd.DataFrame({"size": [*texts, "?"]})).encoded_names == ("size", "size is missing")
    with pytest.raises(TableError, match=r"missing values \('\?' in row 59\)"):
        Schema.of(pd.DataFrame({"size": [*texts, "?"]}), impute=False)
