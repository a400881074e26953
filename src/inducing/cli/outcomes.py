"""What `inducing fit` prints in the end."""

from __future__ import annotations

from rich import box
from rich.table import Table

from inducing.tabular.fitting import Outcome
from inducing.tabular.scores import SEVERAL_TARGETS, shown


def training(outcome: Outcome) -> str:
    """How training ended, in words."""
    steps, limit = len(outcome.estimator.history_), outcome.estimator.step_limit
    ended = "the limit; --max-steps sets another" if steps >= limit else "when the objective rose no more"
    return f"{outcome.estimator.built}\ntrained for {steps} steps in {outcome.seconds:.0f} s, {ended}"


def score_table(outcome: Outcome) -> Table:
    """The scores of the model and of the baselines."""
    table = Table(
        title=f"{len(outcome.problem.test)} test rows",
        title_justify="left",
        caption=SEVERAL_TARGETS if len(outcome.problem.targets) > 1 else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    names = list(next(iter(outcome.scores.values())))
    for name in names:
        table.add_column(name, justify="right")
    for model, values in outcome.scores.items():
        table.add_row(model, *(shown(name, values[name]) for name in names))
    return table
