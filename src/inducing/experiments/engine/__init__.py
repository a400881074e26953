"""What all experiments share: training, the store of results, sweeps, comparisons with the paper, figures and reports."""

from inducing.extras import require

require("rich")
