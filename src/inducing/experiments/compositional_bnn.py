"""The paper's table of compositional uncertainty on the toy problem: how much the function of each layer varies."""

from __future__ import annotations

import numpy as np

from inducing.experiments.engine import figures, store
from inducing.experiments.engine.comparison import ELBO
from inducing.experiments.engine.experiment import Experiment
from inducing.experiments.paper import published
from inducing.experiments.toy import COMPARISON, Config, run


def draw_variances(results: list[store.Result]) -> figures.Figure:
    """Bars for the variance of each layer, ours beside the paper's."""
    figure, (row,) = figures.panels(1, len(results), (2.8, 3.0), sharey=True)
    for axes, result in zip(row, results, strict=True):
        posterior, ours = result["config"]["posterior"], result["metrics"]["layer_variance"]
        paper = published()["toy_compositional_bnn"][posterior]["layer_variance"]
        layers = np.arange(len(ours))
        axes.bar(layers - 0.2, ours, 0.38, color="#3465a4", label="ours")
        axes.bar(layers + 0.2, paper, 0.38, color="#bbbbbb", label="the paper")
        axes.set_title(f"{posterior}\nELBO {ELBO.of(result['metrics']):.2f}", fontsize=10)
        axes.set_xticks(layers, [f"layer {layer + 1}" for layer in layers])
    row[0].set_ylabel("mean variance of the function")
    row[-1].legend(frameon=False)
    return figure


COMPOSITIONAL_BNN = Experiment.described("compositional-bnn", Config(), run, draw_variances, COMPARISON)
