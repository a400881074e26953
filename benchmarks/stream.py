"""How much memory, and how long, `inducing predict` needs for a CSV file of many rows.

    python -m benchmarks.stream                      # 1,000,000 rows
    python -m benchmarks.stream --rows 50000 --base-rows 5000

A small Bayesian neural network is fitted to 500 rows of ten columns (two of them text). Then the real command predicts a
table of the size asked for, and a small one beside it: memory is bounded if both need about the same. Peak memory is the
largest resident set of the process, as the kernel counts it. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import inducing
from benchmarks.processes import measure_command
from inducing.tables.predicting import TableModel

NUMERIC, TEXT = 8, 2
WRITTEN_AT_A_TIME = 100_000


def make_rows(rows: int, seed: int) -> pd.DataFrame:
    """Inputs at random."""
    random = np.random.default_rng(seed)
    columns: dict[str, np.ndarray] = {f"x{i}": random.normal(size=rows) for i in range(NUMERIC)}
    columns |= {f"c{i}": random.choice(["red", "green", "blue"], rows) for i in range(TEXT)}
    return pd.DataFrame(columns)


def write_table(path: Path, rows: int) -> None:
    """Write a table part by part, so that this script stays small too."""
    for part, first in enumerate(range(0, rows, WRITTEN_AT_A_TIME)):
        table = make_rows(min(WRITTEN_AT_A_TIME, rows - first), seed=part + 1)
        table.to_csv(path, index=False, header=part == 0, mode="a")


def main() -> None:
    """Fit, predict both tables, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--base-rows", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train = make_rows(500, seed=0)
        y = train["x0"] * train["x1"] + (train["c0"] == "red")
        estimator = inducing.BNNRegressor(max_steps=arguments.steps, random_state=0).fit(train, y)
        TableModel(estimator, ("y",)).save(folder / "model.safetensors")
        found = {}
        for rows in (arguments.base_rows, arguments.rows):
            table, out = folder / f"{rows}.csv", folder / f"{rows}-predictions.csv"
            write_table(table, rows)
            measured = measure_command("predict", folder / "model.safetensors", table, "--out", out)
            found[rows] = measured | {"table_mb": table.stat().st_size / 2**20}
            with out.open("rb") as file:
                written = sum(1 for _ in file) - 1
            if written != rows:
                raise SystemExit(f"{written} predictions for {rows} rows")
            table.unlink()
            out.unlink()
            shown = ", ".join(f"{key} {value:.1f}" for key, value in found[rows].items())
            print(f"{rows} rows: {shown}", flush=True)
        small, large = found[arguments.base_rows], found[arguments.rows]
        more = arguments.rows - arguments.base_rows
        # what starting up costs is in both
        rate = more / max(large["seconds"] - small["seconds"], 1e-9) if more else float("nan")
        ratio = large["peak_mb"] / small["peak_mb"]
        print(json.dumps({"rows": found, "rows_per_second": round(rate), "ratio_of_peaks": ratio}))


if __name__ == "__main__":
    main()
