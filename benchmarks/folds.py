"""Benchmarks over folds of small tables: one line of JSON for each fold of each dataset."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inducing.data.cache import root

Fold = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def load_fold(name: str, fold: int) -> Fold:
    """Training inputs and targets, test inputs and targets; the targets are standardised."""
    folder = root() / "tables" / name
    data = np.loadtxt(folder / "data.csv.gz", delimiter=",")
    is_test = np.loadtxt(folder / "test_mask.csv.gz", delimiter=",")[:, fold] == 1
    x, y = data[:, :-1], data[:, -1]
    y = (y - y[~is_test].mean()) / y[~is_test].std()
    return x[~is_test], y[~is_test], x[is_test], y[is_test]


def read_folds(path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """All stored results, by dataset and fold."""
    lines = path.read_text().splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines]
    return {(each["set"], each["fold"]): each for each in records}


def run_folds(path: Path, sets: Sequence[str], folds: Sequence[int], run: Callable[[str, int], dict[str, Any]]) -> None:
    """Run each fold of each dataset that is not stored, and append its result."""
    for fold in folds:
        for name in sets:
            if (name, fold) in read_folds(path):
                continue
            start = time.perf_counter()
            result = run(name, fold)
            with path.open("a") as file:
                file.write(json.dumps({"set": name, "fold": fold, **result}) + "\n")
            print(name, fold, f"{time.perf_counter() - start:.0f} s", flush=True)
