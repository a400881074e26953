"""Shared parts of the experiments: training, stored results, sweeps, comparisons with the paper, figures and reports."""

from inducing.extras import require

require("rich")
