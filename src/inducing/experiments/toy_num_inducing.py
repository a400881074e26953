"""The paper's Fig. A1: the toy problem with 2 to 40 global inducing points."""

from __future__ import annotations

from functools import partial

from inducing.experiments.engine.comparison import ELBO, Comparison
from inducing.experiments.engine.experiment import Experiment
from inducing.experiments.toy import SMOKE, Config, draw_predictions, run

NUMBERS = (2, 5, 10, 20, 40)
NUM_INDUCING = Experiment(
    "toy-num-inducing",
    "the paper's Fig. A1: global inducing with 2 to 40 points",
    Config(),
    {"num_inducing": NUMBERS},
    run,
    partial(draw_predictions, title="{num_inducing} points"),
    {"smoke": {**SMOKE, "num_inducing": (2, 5)}, "cpu": {}},
    Comparison({"num_inducing": NUMBERS}, [ELBO._replace(digits=3)]),
)
