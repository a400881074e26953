"""A small table with all that tables can have, and models fitted to it for a few steps."""

import functools

import numpy as np
import pandas as pd

from inducing.tables.fitting import fit_problem, make_estimator
from inducing.tables.problem import make_problem

# a name that would run in a browser, were it not escaped
NASTY = "<script>document.title='run'</script>"


def make_table(rows: int = 60) -> pd.DataFrame:
    """Two numeric inputs and a categorical one; `price` and `weight` are numbers, `kind` is text, `grade` has three values."""
    random = np.random.default_rng(0)
    size, colour = random.normal(50, 20, rows).round(3), random.choice(["red", "blue"], rows)
    table = pd.DataFrame({"size": size, "colour": colour, NASTY: random.normal(size=rows).round(3)})
    table["price"] = (3 * size + 40 * (colour == "red") + random.normal(0, 5, rows)).round(3)
    table["weight"] = (2 * size + random.normal(size=rows)).round(3)
    table["kind"] = np.where(table["price"] > table["price"].median(), "dear", f"cheap {NASTY}")
    table["grade"] = 1 + (size > 40) + (size > 60)
    return table


INPUTS = ("size", "colour", NASTY)


@functools.cache
def outcome(*targets: str, model: str = "bnn", **parameters: object):
    """A fit of a few steps to some of the targets."""
    problem = make_problem(make_table()[[*INPUTS, *targets]], targets, test_fraction=0.2)
    given = {"max_steps": 10, "num_inducing": 10, "n_samples": 20, "random_state": 0} | parameters
    return fit_problem(make_estimator(model, problem, **given), problem)
