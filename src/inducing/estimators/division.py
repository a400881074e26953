"""How many rows a blend holds out to weight its models, and which."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from inducing.estimators.rows import hold_out_rows
from inducing.estimators.targets import observed_rows

# held-out rows: a fifth, and of many rows a twentieth, but as many as a comparison needs
HELD_OUT_SHARE, SHARE_OF_MANY, LEAST_OF_MANY, MOST_HELD_OUT = 0.2, 0.05, 400, 2000
# a smaller share of held-out rows is not worth another fit
SHARE_TO_RETURN = 0.05
# with fewer, no row would be held out
FEWEST_ROWS = 3


class Division(NamedTuple):
    """Rows to fit candidates to, and held-out rows.

    Arguments:
        train: Positions of the rows to fit to.
        held_out: Positions of the held-out rows.
        weights: Weights of all rows.
        returns: Whether the models of the blend are fitted again to all rows.
    """

    train: Int[np.ndarray, " T"]
    held_out: Int[np.ndarray, " H"]
    weights: Float[np.ndarray, " N"]
    returns: bool


def divide_rows(
    targets: np.ndarray, groups: Shaped[np.ndarray, " N"], weights: Float[np.ndarray, " N"], seed: int, alone: str
) -> Division:
    """Hold out some of the rows that have a positive weight and a target.

    Arguments:
        targets: The targets.
        groups: The group of each row. Each group keeps a row to fit to.
        weights: The weight of each row.
        seed: Seed of the choice.
        alone: Name of an estimator that holds out no rows, for an error message.
    """
    rows = np.flatnonzero((weights > 0) & observed_rows(targets))
    num_rows = len(rows)
    if num_rows < FEWEST_ROWS:
        raise ValueError(
            f"{num_rows} sample(s) are too few to hold some out: at least {FEWEST_ROWS} are required. "
            f"Fit one estimator, e.g. {alone}"
        )
    train, held_out = (rows[part] for part in hold_out_rows(groups[rows], count_held_out(num_rows), seed))
    if not len(held_out):
        raise ValueError("each class has only one row, so no row can be held out. For numbers, use AutoRegressor")
    return Division(train, held_out, weights, len(held_out) > SHARE_TO_RETURN * num_rows)


def count_held_out(num_rows: int) -> int:
    """The number of rows to hold out."""
    of_many = max(LEAST_OF_MANY, int(SHARE_OF_MANY * num_rows))
    return min(round(HELD_OUT_SHARE * num_rows), of_many, MOST_HELD_OUT)
