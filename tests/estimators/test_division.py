"""How many rows a blend holds out."""

import pytest

from inducing.estimators import division


@pytest.mark.parametrize(
    ("num_rows", "held_out"), [(3, 1), (100, 20), (2000, 400), (8000, 400), (8011, 400), (20_000, 1000), (10**6, 2000)]
)
def test_the_number_of_held_out_rows(num_rows, held_out):
    assert division.count_held_out(num_rows) == held_out


def test_of_many_rows_at_most_a_twentieth_is_held_out():
    """So that no second fit is needed."""
    assert all(division.count_held_out(rows) <= division.SHARE_TO_RETURN * rows for rows in range(8000, 50_000))
