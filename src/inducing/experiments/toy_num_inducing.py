"""The paper's Fig. A1: the toy problem with 2 to 40 global inducing points."""

from __future__ import annotations

from functools import partial

from inducing.experiments.engine.comparison import ELBO, Comparison
from inducing.experiments.engine.experiment import DESCRIPTIONS, Experiment
from inducing.experiments.toy import Config, draw_predictions, run

NUMBERS = (2, 5, 10, 20, 40)
NUM_INDUCING = Experiment(
    "toy-num-inducing",
    Config(),
    {"num_inducing": NUMBERS},
    run,
    partial(draw_predictions, title="{num_inducing} points"),
    Comparison({"num_inducing": NUMBERS}, [ELBO._replace(digits=3)]),
    **DESCRIPTIONS["toy-num-inducing"],
)
