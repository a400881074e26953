"""Tables in the terminal: `inducing fit`, `inducing predict` and `inducing export`.

Modules that read and fit tables are imported inside the commands: scikit-learn and pandas take as long to import as torch,
and `inducing --help` and `inducing reproduce` do not need them.
"""

from __future__ import annotations

import gzip
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from inducing.checks import check_known
from inducing.cli.messages import one_line_errors, one_line_warnings
from inducing.files import check_writable, open_atomically, write_atomically
from inducing.inference.parallel.ranks import is_first

if TYPE_CHECKING:
    from pandas import DataFrame

    from inducing.estimators.base import NetworkEstimator
    from inducing.tables.fitting import TableFit
    from inducing.tables.problem import Problem
    from inducing.tables.streaming import TableStream

STDOUT = Path("-")
LIKELIHOODS = (
    "gaussian, heteroscedastic, student-t, heteroscedastic-student-t, poisson, negative-binomial; categorical."
)
FORMATS = {"onnx": ".onnx", "torch": ".pt2"}
Exclude = Annotated[list[str] | None, typer.Option(help="Column to ignore (repeatable).")]


@contextmanager
def _messages(command: str) -> Iterator[None]:
    """Errors and warnings on one line; errors about tables name the options that help."""
    with one_line_errors(command), one_line_warnings(command):
        from inducing.tables.errors import TableError

        try:
            yield
        except TableError as error:
            impute = "leave out --no-impute" if command == "fit" else "fit again without --no-impute"
            raise ValueError(error.explain(impute, exclude=" (--exclude)")) from error


@_messages("fit")
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
    from inducing.tables.fitting import fit_training_rows, make_estimator, members_of, score_fit
    from inducing.tables.predicting import TableModel
    from inducing.tables.problem import make_problem

    # under torchrun all processes fit together, and the first prints and writes
    console = Console(quiet=not is_first(), highlight=False, soft_wrap=True, markup=False)
    _check_files({"table": table}, {"out": out, "report": report})
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
        found = estimator.weights_ if isinstance(estimator, Auto) else None
        final = fit_training_rows(make_estimator(model, whole, found, **parameters), whole, stream_of_rows)
        seconds += time.perf_counter() - start
        save(final)
    if not is_first():
        return
    if isinstance(estimator, Auto):
        weights = ", ".join(f"{name} {weight:.2f}" for name, weight in estimator.weights_.items())
        scores = ", ".join(f"{name} {score:.3f}" for name, score in estimator.scores_.items())
        console.print(f"weights of models: {weights}. Log-likelihoods of rows held out of the training rows: {scores}")
    uses_all_rows = refit or fitted is None
    num_rows = total if uses_all_rows else total - len(problem.test)
    members = members_of(final)
    for name, member in members.items():
        reason = _why_training_ended(member, num_rows, max_steps, time_budget)
        title = f"{name}: " if len(members) > 1 else ""
        console.print(f"{title}{member.built}\ntrained for {len(member.history_)} steps: {reason}")
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
    with _bar("sample") as advance:
        data, count = sample_table(table, target, seed, progress=advance)
    sample, of = format_number(len(data)), counted(count, "row")
    console.print(f"{table.name} is streamed: a sample of {sample} of its {of} describes the columns")
    return data, TableStream(table, count, out.with_name(f"{out.name}.stream"), partial(_bar, "encode", count))


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


@_messages("predict")
def predict(
    model: Annotated[Path, typer.Argument(help="A model file of `inducing fit`.")],
    table: Annotated[Path, typer.Argument(help="New rows: .csv, .csv.gz or .parquet, of any size.")],
    out: Annotated[Path, typer.Option(help="File to write: .csv or .csv.gz. Default: print.", dir_okay=False)] = STDOUT,
    keep: Annotated[list[str] | None, typer.Option(help="Column to copy to the predictions (repeatable).")] = None,
    exclude: Exclude = None,
) -> None:
    """Predict the rows of a table: mean, standard deviation and quantiles, or the probabilities of classes."""
    from inducing.tables.errors import counted
    from inducing.tables.predicting import TableModel, predict_table
    from inducing.tables.reading import CSV, PARQUET, count_rows

    if not is_first():
        # under torchrun the first process writes
        return
    _check_files({"model": model, "table": table}, {"out": None if out == STDOUT else out})
    if out.suffix in (".parquet", ".pq"):
        raise ValueError(f"predictions are CSV. Name the file {out.with_suffix('.csv').name}, not {out.name}.")
    if model.name.endswith(CSV + PARQUET):
        raise ValueError(f"{model} is not a model file. The order is: inducing predict MODEL TABLE.")
    loaded = TableModel.load(model)
    opened = nullcontext(sys.stdout.buffer) if out == STDOUT else open_atomically(out)
    with _progress() as bar, opened as written, _compressed(written, out) as file:
        task = bar.add_task("predict", total=None)
        # a file that cannot be read is refused below, with the reason
        with suppress(OSError, ValueError):
            bar.update(task, total=None if bar.disable else count_rows(table))
        rows = predict_table(loaded, table, file, keep or (), exclude or (), progress=partial(bar.advance, task))
        file.flush()
        bar.update(task, total=rows)
    if out != STDOUT:
        typer.echo(f"{counted(rows, 'row')}: {out}")


@contextmanager
def _compressed(file: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    """The file, or one that compresses what is written, by the name of the path."""
    if path.suffix != ".gz":
        yield file
        return
    # without the time, so that the same predictions are the same file
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
        yield cast(BinaryIO, compressed)


@_messages("export")
def export(
    model: Annotated[Path, typer.Argument(help="A model file of `inducing fit`.")],
    to: Annotated[str, typer.Option(help="onnx (ONNX) or torch (a program of torch.export).")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="File to write. Default: MODEL with .onnx or .pt2.", dir_okay=False)
    ] = None,
    quantile: Annotated[
        list[float] | None, typer.Option(help="Level of a quantile (repeatable). Default: 0.05, 0.5, 0.95.")
    ] = None,
) -> None:
    """Write a model as a file that other programs run: rows in, mean, standard deviation and quantiles out."""
    from inducing.estimators.exporting import export_estimator
    from inducing.tables.predicting import TableModel

    check_known("format", to, FORMATS)
    out = model.with_suffix(FORMATS[to]) if out is None else out
    if out.suffix != FORMATS[to]:
        wanted = out.with_suffix(FORMATS[to]).name
        raise ValueError(f"--to {to} writes {FORMATS[to]} files. Name it {wanted}, not {out.name}.")
    _check_files({"model": model}, {"out": out})
    loaded = TableModel.load(model)
    export_estimator(loaded.estimator, out, quantile, loaded.targets)
    typer.echo(f"model: {out}")


def _check_files(inputs: dict[str, Path], outputs: dict[str, Path | None]) -> None:
    """Refuse files that cannot be written, and to overwrite a file that the same command reads or writes."""
    seen: dict[Path, str] = {}
    for name, path in (inputs | outputs).items():
        if path is None:
            continue
        if name in outputs:
            check_writable(path)
        other = seen.setdefault(path.resolve(), name)
        if other != name:
            raise ValueError(f"{path} is both {other} and {name}. Name two different files.")


@contextmanager
def _bar(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar that is advanced by numbers of rows."""
    with _progress() as bar:
        yield partial(bar.advance, bar.add_task(description, total=total))


def _progress() -> Progress:
    """A bar on stderr, since stdout may be the predictions."""
    console = Console(stderr=True)
    columns = *Progress.get_default_columns(), MofNCompleteColumn(), TextColumn("rows"), TimeElapsedColumn()
    return Progress(*columns, console=console, disable=not console.is_terminal)
