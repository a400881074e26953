"""The command `inducing export`.

Modules that export models are imported inside the command: `inducing --help` does not need them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inducing.checks import check_known
from inducing.cli.tables import check_files, table_messages

FORMATS = {"onnx": ".onnx", "torch": ".pt2"}


@table_messages("export")
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
    check_files({"model": model}, {"out": out})
    loaded = TableModel.load(model)
    export_estimator(loaded.estimator, out, quantile, loaded.targets)
    typer.echo(f"model: {out}")
