"""Tables in the terminal: `inducing fit` and `inducing predict`.

What reads and fits tables is imported inside the commands: scikit-learn and pandas take as long to import as torch, and
`inducing --help` and `inducing reproduce` do without them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from inducing.cli.messages import one_line_errors, one_line_warnings
from inducing.files import check_writable, open_atomically, write_atomically
from inducing.inference.distributed import is_first


def fit(
    table: Annotated[Path, typer.Argument(help="The data: .csv, .csv.gz or .parquet, with a heading.")],
    target: Annotated[list[str], typer.Option(help="The column to predict. Give it again for more, in regression.")],
    model: Annotated[str, typer.Option(help="bnn (Bayesian neural network) or dgp (deep Gaussian process).")] = "bnn",
    task: Annotated[str | None, typer.Option(help="regression or classification; else by the target.")] = None,
    posterior: Annotated[str | None, typer.Option(help="global, local, factorised->global, dsvi, ...")] = None,
    prior: Annotated[str | None, typer.Option(help="Of a bnn: scale, neal, standard, ...")] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(
            help="gaussian, heteroscedastic, student-t, heteroscedastic-student-t, poisson, negative-binomial; categorical."
        ),
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="A column that is no input; again for more.")] = None,
    impute: Annotated[
        bool, typer.Option("--impute", help="Fill missing inputs: median, most frequent category.")
    ] = False,
    test_fraction: Annotated[float, typer.Option(help="Share of the rows to test on.")] = 0.1,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Gradient steps at most.")] = None,
    device: Annotated[str | None, typer.Option(help="Where to train: cpu, cuda, ...")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides the test rows and all randomness of the fit.")] = 0,
    out: Annotated[Path, typer.Option(help="The model file.", dir_okay=False)] = Path("model.safetensors"),
    report: Annotated[Path | None, typer.Option(help="A report, one HTML file.", dir_okay=False)] = None,
) -> None:
    """Fit a model to a table and judge it on rows it has not seen, beside a constant and a linear model."""
    from inducing.cli.outcomes import score_table, training
    from inducing.data.tables import read_table
    from inducing.tabular.fitting import fit_problem, make_estimator
    from inducing.tabular.model import TableModel
    from inducing.tabular.problem import pose
    from inducing.tabular.report import report_page

    with one_line_errors("fit"), one_line_warnings("fit"):
        # under torchrun all fit together, and the first tells and writes
        first = is_first()
        console = Console(quiet=not first)
        _check_outputs(out, report)
        _check_apart(table=table, out=out, report=report)
        if report is not None and report.suffix not in (".html", ".htm"):
            raise ValueError(f"a report is an HTML file; name it {report.with_suffix('.html').name}, not {report.name}")
        asked = task or _task_of(likelihood)
        problem = pose(read_table(table), target, asked, exclude or (), test_fraction, seed)
        changes = {"posterior": posterior, "prior": prior, "likelihood": likelihood, "max_steps": max_steps}
        estimator = make_estimator(model, problem, impute, **changes, device=device, random_state=seed, verbose=True)
        reason = f"the likelihood {likelihood} is for it" if asked and not task else problem.reason
        hint = "" if asked or len(target) > 1 else "; --task changes that"
        console.print(
            f"{problem.task}, since {escape(reason)}{hint}\n"
            f"{len(problem.train)} rows to learn from, {len(problem.test)} to test on; {problem.inputs.shape[1]} columns",
            highlight=False,
            soft_wrap=True,
        )
        outcome = fit_problem(estimator, problem)
        if not first:
            return
        TableModel(estimator, problem.targets, problem.excluded).save(out)
        console.print(training(outcome), highlight=False, soft_wrap=True)
        console.print(score_table(outcome))
        console.print(f"model: {escape(str(out))}", highlight=False, soft_wrap=True)
        if report is not None:
            write_atomically(report, report_page(outcome, table.name).encode())
            console.print(f"report: {escape(str(report))}", highlight=False, soft_wrap=True)


def predict(
    model: Annotated[Path, typer.Argument(help="A model file of `inducing fit`.")],
    table: Annotated[Path, typer.Argument(help="New rows: .csv, .csv.gz or .parquet, of any size.")],
    out: Annotated[Path, typer.Option(help="The predictions, as CSV; - prints them.", dir_okay=False)] = Path("-"),
    keep: Annotated[list[str] | None, typer.Option(help="A column to copy to the predictions; again for more.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="A column that is no input; again for more.")] = None,
) -> None:
    """Predict the rows of a table: mean, standard deviation and quantiles, or the probabilities of classes."""
    from inducing.data.tables import estimate_rows
    from inducing.tabular.model import TableModel
    from inducing.tabular.predicting import predict_table

    with one_line_errors("predict"), one_line_warnings("predict"):
        if not is_first():
            # under torchrun the first writes
            return
        _check_outputs(out)
        _check_apart(model=model, table=table, out=out)
        if out.suffix in (".parquet", ".pq"):
            raise ValueError(
                f"predictions are written as CSV; name them {out.with_suffix('.csv').name}, not {out.name}"
            )
        if table.suffix == ".safetensors" and model.suffix != ".safetensors":
            raise ValueError(f"the model comes first: inducing predict {table} {model}")
        loaded = TableModel.load(model)
        with _progress() as bar, _opened(out) as file:
            task = bar.add_task("predict", total=None)
            if not bar.disable:
                # a file that cannot be read is refused below, with the reason
                with suppress(OSError, ValueError):
                    bar.update(task, total=estimate_rows(table))
            rows = predict_table(
                loaded, table, file, keep or (), exclude or (), progress=lambda done: bar.advance(task, done)
            )
            bar.update(task, total=rows)
        if out != Path("-"):
            typer.echo(f"{rows} rows: {out}")


def _task_of(likelihood: str | None) -> str | None:
    """A likelihood that was asked for decides the task."""
    if likelihood in (None, "auto"):
        return None
    return "classification" if likelihood == "categorical" else "regression"


def _check_outputs(*paths: Path | None) -> None:
    """Refuse files that cannot be written before any time is spent."""
    for path in paths:
        if path is not None and path != Path("-"):
            check_writable(path)


def _check_apart(**paths: Path | None) -> None:
    """Refuse to write over a file that is read, or written, by the same command."""
    seen: dict[Path, str] = {}
    for name, path in paths.items():
        if path is None or path == Path("-"):
            continue
        other = seen.setdefault(path.resolve(), name)
        if other != name and name == "table":
            raise ValueError(f"{path} cannot be both the {other} and the {name}; give one file for each")
        if other != name:
            raise ValueError(f"{path} is the {other} and would be overwritten as the {name}; choose another name")


def _progress() -> Progress:
    """A bar on stderr, since stdout may be the predictions."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


@contextmanager
def _opened(out: Path) -> Iterator[BinaryIO]:
    """A file that is there as a whole or not at all; or stdout."""
    if out == Path("-"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with open_atomically(out) as file:
        yield file
