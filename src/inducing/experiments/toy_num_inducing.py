"""The paper's Fig. A1: the toy problem with 2 to 40 global inducing points."""

from __future__ import annotations

from functools import partial

from inducing.experiments.engine.comparison import ELBO, Comparison
from inducing.experiments.engine.experiment import Experiment
from inducing.experiments.toy import Config, draw_predictions, run

COMPARISON = Comparison(["num_inducing"], [ELBO._replace(digits=3)])
FIGURE = partial(draw_predictions, title="{num_inducing} points")
NUM_INDUCING = Experiment.described("toy-num-inducing", Config(), run, FIGURE, COMPARISON)
