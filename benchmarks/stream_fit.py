"""How much memory, and how long, `inducing fit` needs for a table that is larger than memory should be.

    python -m benchmarks.stream_fit                          # 10,000,000 rows of 20 columns, CSV and Parquet
    python -m benchmarks.stream_fit --rows 100000 --steps 50

The real command fits a table of 17 numbers, two texts and a target. The number of gradient steps is small: the time of a
step does not depend on the number of rows. Peak memory is the largest resident set of the process, as the kernel counts it.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow
from pyarrow import csv, parquet

from benchmarks.processes import measure_command

NUMERIC, TEXT = 17, 2
WRITTEN_AT_A_TIME = 200_000


def make_rows(rows: int, seed: int) -> pd.DataFrame:
    """Inputs at random, and a target that depends on four of them."""
    random = np.random.default_rng(seed)
    columns: dict[str, np.ndarray] = {f"x{i}": random.normal(size=rows).round(4) for i in range(NUMERIC)}
    columns |= {f"c{i}": random.choice(["red", "green", "blue"], rows) for i in range(TEXT)}
    table = pd.DataFrame(columns)
    mean = table["x0"] * table["x1"] + np.sin(2 * table["x2"]) + (table["c0"] == "red")
    return table.assign(y=(mean + random.normal(0, 0.3, rows)).round(3))


def write_table(path: Path, rows: int) -> None:
    """Write a table part by part, so that this script stays small too."""
    writer: Any = None
    for part, first in enumerate(range(0, rows, WRITTEN_AT_A_TIME)):
        table = arrow.Table.from_pandas(make_rows(min(WRITTEN_AT_A_TIME, rows - first), seed=part))
        if writer is None:
            make = csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter
            writer = make(path, table.schema)
        writer.write_table(table)
    writer.close()


def measure(table: Path, steps: int) -> dict[str, float]:
    """Fit a table in a process of its own. Return its seconds and its peak memory in MB."""
    options = ["--target", "y", "--max-steps", steps, "--stream", "always"]
    return measure_command("fit", table, *options, "--out", table.with_name("model.safetensors"))


def main() -> None:
    """Write both kinds of tables, fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--kinds", nargs="+", default=["parquet", "csv"], choices=["parquet", "csv"])
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as name:
        for kind in arguments.kinds:
            table = Path(name) / f"table.{kind}"
            write_table(table, arguments.rows)
            size = table.stat().st_size / 2**20
            found[kind] = {"table_mb": size, **measure(table, arguments.steps)}
            table.unlink()
            print(f"{kind}: " + ", ".join(f"{key} {value:.1f}" for key, value in found[kind].items()), flush=True)
    print(json.dumps({"rows": arguments.rows, "columns": NUMERIC + TEXT + 1, **found}))


if __name__ == "__main__":
    main()
