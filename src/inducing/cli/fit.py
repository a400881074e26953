"""The command `inducing fit`.

Modules that read and fit tables are imported inside the command: scikit-learn and pandas take as long to import as torch,
and `inducing --help` and `inducing reproduce` do not need them.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from inducing.checks import check_known
from inducing.cli.tables import Exclude, check_files, row_bar, table_messages
from inducing.files import write_atomically
from inducing.inference.parallel.ranks import is_first

if TYPE_CHECKING:
    from pandas import DataFrame

    from inducing.estimators.auto import Auto
    from inducing.estimators.base import NetworkEstimator
    from inducing.tables.fitting import TableFit
    from inducing.tables.problem import Problem
    from inducing.tables.streaming import TableStream

LIKELIHOODS = (
    "gaussian, heteroscedastic, student-t, heteroscedastic-student-t, poisson, negative-binomial; categorical."
)


@table_messages("fit")
def fit(
    table: Annotated[Path, typer.Argument(help="The data: .csv, .csv.gz or .parquet, with a header.")],
    target: Annotated[list[str], typer.Option(help="Column to predict (repeatable in regression).")],
    model: Annotated[
        str,
        typer.Option(help="bnn (Bayesian neural network), dgp (deep Gaussian process), trees (bnn on trees), or auto."),
    ] = "bnn",
    task: Annotated[str | None, typer.Option(help="regression or classification. Default: by the target.")] = None,
    posterior: Annotated[str | None, typer.Option(help="global, local, factorised->global, dsvi, ...")] = None,
    prior: Annotated[str | None, typer.Option(help="Prior of a bnn: scale, neal, standard, ...")] = None,
    likelihood: Annotated[str | None, typer.Option(help=LIKELIHOODS)] = None,
    exclude: Exclude = None,
    include: Annotated[list[str] | None, typer.Option(help="Column to use even if it looks like row numbers.")] = None,
    impute: Annotated[bool, typer.Option(help="Accept missing inputs: median or a category of their own.")] = True,
    target_transform: Annotated[
        str, typer.Option(help="log, none, or auto: log for skewed positive targets.")
    ] = "auto",
    test_fraction: Annotated[
        float, typer.Option(help="Fraction of the rows to test on. 0: none, and no scores.")
    ] = 0.1,
    refit: Annotated[
        bool, typer.Option("--refit", help="Fit again to all rows after the test, and save that model.")
    ] = False,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Maximum number of gradient steps.")] = None,
    time_budget: Annotated[
        float | None, typer.Option(help="Seconds of training: as many steps as fit. Default: no limit.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where to train: cpu, cuda, ...")] = None,
    stream: Annotated[
        str, typer.Option(help="Read the table in chunks: always, never, or auto: above about 250 MB.")
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the test rows and of the fit.")] = 0,
    out: Annotated[Path, typer.Option(help="Model file to write.", dir_okay=False)] = Path("model.safetensors"),
    report: Annotated[Path | None, typer.Option(help="HTML report to write.", dir_okay=False)] = None,
) -> None:
    """Fit a model to a table, and compare it with a linear model and boosted trees on held-out rows."""
    from inducing.estimators.auto import Auto
    from inducing.tables.fitting import fit_training_rows, make_estimator, score_fit
    from inducing.tables.predicting import TableModel
    from inducing.tables.problem import make_problem

    # under torchrun all processes fit together, and the first prints and writes
    console = Console(quiet=not is_first(), highlight=False, soft_wrap=True, markup=False)
    check_files({"table": table}, {"out": out, "report": report})
    _check_options(report, test_fraction, time_budget)
    data, stream_of_rows = _open_table(table, target, model, stream, seed, out, console)
    make = partial(
        make_problem,
        data,
        target,
        task,
        exclude or (),
        seed=seed,
        impute=impute,
        likelihood=likelihood,
        target_transform=target_transform,
        include=include or (),
        num_rows=None if stream_of_rows is None else stream_of_rows.num_rows,
    )
    problem = make(test_fraction=test_fraction)
    num_fits = 2 if refit and test_fraction else 1
    parameters: dict[str, Any] = {
        "posterior": posterior,
        "prior": prior,
        "likelihood": likelihood,
        "max_steps": max_steps,
        "time_budget": time_budget and time_budget / num_fits,
        "device": device,
        "random_state": seed,
        "verbose": True,
    }
    estimator = make_estimator(model, problem, **parameters)
    total = len(problem.y) if stream_of_rows is None else stream_of_rows.num_rows
    may_change_task = not task and likelihood in (None, "auto") and len(target) == 1
    _print_problem(console, problem, total, may_change_task)
    replaced = " (replaced)" if out.exists() else ""

    def save(trained: NetworkEstimator | Auto) -> None:
        if is_first():
            TableModel(trained, problem.targets, problem.excluded).save(out)

    start = time.perf_counter()
    final = fit_training_rows(estimator, problem, stream_of_rows)
    seconds = time.perf_counter() - start
    # before the scores, so that nothing is lost if they fail
    save(final)
    fitted = score_fit(final, problem, seconds, stream_of_rows) if test_fraction else None
    if refit and fitted is not None:
        start = time.perf_counter()
        whole = make(test_fraction=0.0)
        earlier = estimator if isinstance(estimator, Auto) else None
        final = fit_training_rows(make_estimator(model, whole, earlier, **parameters), whole, stream_of_rows)
        seconds += time.perf_counter() - start
        save(final)
    if not is_first():
        return
    if isinstance(estimator, Auto):
        _print_weights(console, estimator)
    uses_all_rows = refit or fitted is None
    num_rows = total if uses_all_rows else total - len(problem.test)
    _print_training(console, final, num_rows, max_steps, time_budget)
    console.print(f"{seconds:.0f} s of training")
    if fitted is not None:
        _print_scores(console, fitted)
    if stream_of_rows is not None:
        stream_of_rows.remove_files()
    console.print(f"model{', fitted to all rows' if uses_all_rows else ''}: {out}{replaced}")
    if report is not None and fitted is not None:
        _write_report(report, fitted, table.name)
        console.print(f"report: {report}")


def _check_options(report: Path | None, test_fraction: float, time_budget: float | None) -> None:
    """Raise an error for invalid options of `fit`, before the table is read."""
    if report is not None and report.suffix not in (".html", ".htm"):
        raise ValueError(f"a report is HTML. Name it {report.with_suffix('.html').name}, not {report.name}.")
    if not 0 <= test_fraction < 1:
        raise ValueError(f"--test-fraction must be at least 0 and below 1, got {test_fraction:g}")
    if report is not None and not test_fraction:
        raise ValueError("a report is about test rows. Leave out --report, or --test-fraction 0")
    if time_budget is not None and time_budget <= 0:
        raise ValueError(f"--time-budget must be a positive number of seconds, got {time_budget:g}")


def _open_table(
    table: Path, target: list[str], model: str, stream: str, seed: int, out: Path, console: Console
) -> tuple[DataFrame, TableStream | None]:
    """All rows, or a sample of the rows and the stream of all."""
    from inducing.tables.errors import counted
    from inducing.tables.numbers import format_number
    from inducing.tables.reading import read_table
    from inducing.tables.sampling import STREAM, is_streamed, sample_table
    from inducing.tables.streaming import TableStream

    check_known("stream", stream, STREAM)
    if not is_streamed(table, stream):
        return read_table(table), None
    if model in ("auto", "trees"):
        why = f"{table.name} is streamed, and --model {model} needs all rows in memory"
        raise ValueError(f"{why}. Use bnn or dgp, or --stream never.")
    with row_bar("sample") as advance:
        data, count = sample_table(table, target, seed, progress=advance)
    sample, of = format_number(len(data)), counted(count, "row")
    console.print(f"{table.name} is streamed: a sample of {sample} of its {of} describes the columns")
    return data, TableStream(table, count, out.with_name(f"{out.name}.stream"), partial(row_bar, "encode", count))


def _print_problem(console: Console, problem: Problem, total: int, may_change_task: bool) -> None:
    """Print the task, the numbers of rows and columns, and the treatment of each column."""
    from inducing import pages
    from inducing.tables.errors import counted

    console.print(f"{problem.task} ({problem.reason}{'; change it with --task' if may_change_task else ''})")
    training_rows, test_rows = (
        counted(total - len(problem.test), "training row"),
        counted(len(problem.test), "test row"),
    )
    schema = problem.encoded.schema
    left_out = f", {len(schema.left_out)} left out" if schema.left_out else ""
    inputs = counted(problem.inputs.shape[1] - len(schema.left_out), "input column")
    console.print(f"{training_rows}, {test_rows}, {inputs}{left_out}")
    console.print(pages.to_rich(schema.describe()), soft_wrap=False)
    for name in (name for name, is_log in zip(problem.targets, problem.is_log, strict=False) if is_log):
        console.print(f"{name} is modelled on a log scale; change it with --target-transform")


def _print_weights(console: Console, blend: Auto) -> None:
    """Print the weights of the models of a blend, the scores that decided them, and the factor of the noise."""
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in blend.weights_.items())
    scores = ", ".join(f"{name} {score:.3f}" for name, score in blend.scores_.items())
    console.print(f"weights of models: {weights}. Log-likelihoods of rows held out of the training rows: {scores}")
    if blend.noise_factor_ != 1:
        factor = f"{blend.noise_factor_:.2f}"
        console.print(f"in predictions, noise variances of all models times {factor}, chosen by the same rows")


def _print_training(
    console: Console,
    final: NetworkEstimator | Auto,
    num_rows: int,
    max_steps: int | None,
    time_budget: float | None,
) -> None:
    """Print what each model is, and its number of steps with the reason."""
    from inducing.tables.fitting import members_of

    members = members_of(final)
    for name, member in members.items():
        reason = _why_training_ended(member, num_rows, max_steps, time_budget)
        title = f"{name}: " if len(members) > 1 else ""
        console.print(f"{title}{member.built}\ntrained for {len(member.history_)} steps: {reason}")


def _why_training_ended(
    final: NetworkEstimator, num_rows: int, max_steps: int | None, time_budget: float | None
) -> str:
    """The reason for the number of steps."""
    from inducing.estimators.architectures import BNN
    from inducing.tables.errors import counted

    if final.limited_by_time_:
        # a blend, or a fit to all rows at the end, divides the time
        share = f", a share of the {time_budget:g} s" if final.time_budget != time_budget else ""
        return f"as many steps as fit into {final.time_budget:.3g} s{share} (--time-budget)"
    if final.history_.held_out and isinstance(final, BNN) and max_steps is not None:
        limit = f"at most {max_steps:,} in all stages (--max-steps)"
        return f"held-out rows chose weight {final.history_[-1].temperature:g} of the KL; {limit}"
    if final.history_.held_out and isinstance(final, BNN):
        return f"held-out rows chose weight {final.history_[-1].temperature:g} of the KL and the number of steps"
    if final.history_.held_out:
        return "held-out rows chose the number of steps"
    if not final.used_all_steps_:
        return "converged"
    default = f"the default number of steps for {counted(num_rows, 'row')}; --max-steps raises it"
    return default if max_steps is None else "the limit (--max-steps)"


def _print_scores(console: Console, fitted: TableFit) -> None:
    """Print the scores of the test rows, and which baselines are better."""
    from inducing import pages
    from inducing.tables.errors import counted

    test_rows = counted(len(fitted.problem.test), "test row")
    console.print(pages.to_rich(fitted.score_table(test_rows)), soft_wrap=False)
    for loss in fitted.losses:
        console.print(loss)


def _write_report(path: Path, fitted: TableFit, name: str) -> None:
    from inducing import pages
    from inducing.tables.report import report_page

    write_atomically(path, pages.to_html(report_page(fitted, name)).encode())
