"""The paper's table of compositional uncertainty on the toy problem: how much the function of each layer varies."""

from __future__ import annotations

import numpy as np

from inducing.experiments.engine import figures, store
from inducing.experiments.engine.comparison import ELBO, layer_variance
from inducing.experiments.engine.experiment import Experiment
from inducing.experiments.toy import COMPARISON, Config, run


def draw_variances(results: list[store.Result]) -> figures.Figure:
    """Bars for the variance of each layer, ours beside the paper's. Lines: standard errors over splits."""
    found = [COMPARISON.estimates(results, layer_variance(layer)) for layer in range(3)]
    layers = np.arange(len(found))
    elbos, _ = COMPARISON.estimates(results, ELBO)
    figure, (row,) = figures.panels(1, len(elbos), (2.8, 3.0), sharey=True)
    for axes, (key, elbo) in zip(row, elbos.items(), strict=True):
        ours, paper = [own[key] for own, _ in found], [theirs[key] for _, theirs in found]
        means, errors = [each.mean for each in ours], [each.error for each in ours]
        axes.bar(layers - 0.2, means, 0.38, yerr=errors, color="#3465a4", label="ours")
        axes.bar(layers + 0.2, [each.mean for each in paper], 0.38, color="#bbbbbb", label="the paper")
        axes.set_title(f"{key[0]}\nELBO {elbo.text()}", fontsize=10)
        axes.set_xticks(layers, [f"layer {layer + 1}" for layer in layers])
    row[0].set_ylabel("mean variance of the function")
    row[-1].legend(frameon=False)
    return figure


COMPOSITIONAL_BNN = Experiment.described("compositional-bnn", Config(), run, draw_variances, COMPARISON)
