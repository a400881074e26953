"""UCI regression: shared parts of the experiments with Bayesian neural networks and deep Gaussian processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

import inducing
from inducing.data import uci
from inducing.experiments.engine import figures, store, training
from inducing.experiments.engine.comparison import ELBO, RMSE, TEST, Comparison
from inducing.experiments.engine.experiment import Experiment, Metrics

Build = Callable[[Any, Tensor, Tensor], inducing.Network]


def run_split(
    build: Build, config: training.TrainingConfig, checkpoint: Path | None = None, progress: bool = True
) -> Metrics:
    """Fit a network to one split. ELBOs are for standardised targets, test scores for the original scale."""
    data = uci.load(config.dataset, config.split)
    likelihood, rows = inducing.Gaussian(), (data.x_train, data.y_train)
    network = build(config, *rows)
    recipe = training.recipe_of(config).replace(early_samples=None)
    trained = training.train_and_score(network, likelihood, rows, config, checkpoint, progress, recipe=recipe)
    predictive = inducing.predict(network, likelihood, data.x_test, config.test_samples, seed=config.split)
    return {
        "elbo_per_datapoint": float(trained.terms.elbo_per_datapoint),
        **training.held_out_scores(predictive.unstandardise(data.target_mean, data.target_std), data.y_test),
        "kl": [float(layer) / trained.terms.num_data for layer in trained.terms.kl.mean(1)],
        "noise_variance": likelihood.noise_variance.item(),
        "max_jitter": max(record.jitter for record in trained.history.records),
    }


def uci_experiment(name: str, paper: Any, build: Build, axis: str, note: str = "", **settings: Any) -> Experiment:
    """The experiment of a table of the paper.

    Arguments:
        name: Its name; with an underscore, the name of the table in the published numbers.
        paper: The paper's settings.
        build: Function that makes the network of a configuration, from the training inputs and targets.
        axis: The field of the configuration between the dataset and the posterior.
        note: Text below the table.
        settings: Other arguments of `Experiment`.
    """
    axes, table = ["dataset", axis, "posterior"], name.replace("-", "_")
    comparison = Comparison(axes, (ELBO, TEST, RMSE), table, note, num_brief=2)
    # protein has 5 splits, the others have 20
    settings["exists"] = lambda config: config.dataset != "protein" or config.split < 5
    run, figure = partial(run_split, build), partial(draw_scores, comparison)
    return Experiment.described(name, paper, run, figure, comparison, **settings)


def draw_scores(comparison: Comparison, results: list[store.Result]) -> figures.Figure:
    """A panel for each dataset and measure: our scores, and the paper's as open circles."""
    _, axis, _ = comparison.axes
    datasets, values = (list(dict.fromkeys(each["config"][field] for each in results)) for field in ("dataset", axis))
    figure, rows = figures.panels(2, len(datasets), (3.0, 2.5), sharex=True)
    for measure, row in zip((ELBO, TEST), rows, strict=True):
        ours, paper = comparison.estimates(results, measure)
        for dataset, axes in zip(datasets, row, strict=True):
            own = [key for key in ours if key[0] == dataset]
            posteriors = list(dict.fromkeys(key[2] for key in own))
            shifts = {each: 0.15 * (i - (len(posteriors) - 1) / 2) for i, each in enumerate(posteriors)}
            places = {key: values.index(key[1]) + shifts[key[2]] for key in own}
            figures.draw_estimates(axes, ours, paper, places, shift=0.05)
            axes.set_xticks(range(len(values)), [str(value) for value in values])
            axes.margins(x=0.3)
        row[0].set_ylabel(measure.heading)
    for dataset, upper, lower in zip(datasets, *rows, strict=True):
        upper.set_title(dataset)
        lower.set_xlabel({"depth": "layers"}.get(axis, axis))
    found = (dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)) for axes in rows[0])
    handles = {posterior: handle for panel in found for posterior, handle in panel.items()}
    style = {"title": "open: the paper", "title_fontsize": 8, "fontsize": 8, "ncols": len(handles), "frameon": False}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", **style)
    return figure
