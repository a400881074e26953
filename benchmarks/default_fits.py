"""Default fits of the estimators: seconds and the log-likelihood of held-out rows, of an earlier version and of this one.

    git worktree add ../before 00a979a
    INDUCING_DATA=... python -m benchmarks.default_fits ../before/src        # default_fits.json, default_fits.md

The datasets are those on which the defaults were decided (`benchmarks/estimator_defaults.py`): 400 rows to learn from and
600 to judge by; for classes see there. Each fit has a fresh process with one thread. The two versions take turns.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.processes import ROOT
from benchmarks.versions import THIS_VERSION, run_version

RESULTS, PAGE = ROOT / "benchmarks" / "default_fits.json", ROOT / "benchmarks" / "default_fits.md"
FITS = {
    "BNNRegressor": ("kin8nm", "power", "wine", "friedman1", "friedman3"),
    "DeepGPRegressor": ("kin8nm", "power", "wine", "friedman1", "friedman3"),
    "BNNClassifier": ("fashion-mnist", "sklearn-wine", "three"),
    "DeepGPClassifier": ("fashion-mnist", "sklearn-wine", "three"),
}
INTRODUCTION = """# Default fits, before and after

Made by `python -m benchmarks.default_fits` from `default_fits.json`. Seconds of a fit with one thread, and the mean
log-likelihood of held-out rows on standardised targets, with the paired difference and its standard error. Before: commit
00a979a, without the optimisations below and with 1,000 (BNN) or 1,500 (deep GP) steps for regression. After: the version
that made this page. Regressors learn from 400 rows and are tested on 600.

| estimator | dataset | seconds before | seconds after | ratio | log-likelihood before | after | difference |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def worker(model: str, name: str) -> None:
    """Fit with defaults, and print seconds and the log-likelihood of each held-out row."""
    import torch

    import inducing
    from benchmarks.estimator_defaults import classes, table

    warnings.simplefilter("ignore")
    is_classifier = model.endswith("Classifier")
    x, y, x_test, y_test = classes(name) if is_classifier else table(name, 400)
    estimator = getattr(inducing, model)(random_state=0)
    start = time.perf_counter()
    estimator.fit(x, y)
    seconds = time.perf_counter() - start
    targets = torch.from_numpy(y_test if is_classifier else y_test[:, None])
    densities = estimator.predict_distribution(x_test).log_prob(targets).flatten().tolist()
    print(json.dumps({"seconds": seconds, "log_likelihoods": densities}))


def compare(before: Path, model: str, name: str) -> dict[str, Any]:
    """The same fit with both versions."""
    old, new = (run_version(source, "default_fits", model, name) for source in (before, THIS_VERSION))
    old_rows, new_rows = (np.array(found["log_likelihoods"]) for found in (old, new))
    difference = new_rows - old_rows
    return {
        "model": model,
        "name": name,
        "seconds": [old["seconds"], new["seconds"]],
        "log_likelihood": [float(old_rows.mean()), float(new_rows.mean())],
        "difference": [float(difference.mean()), float(difference.std(ddof=1) / math.sqrt(len(difference)))],
    }


def page(results: list[dict[str, Any]]) -> str:
    """The table."""
    rows = []
    for result in results:
        (old, new), (low, high) = result["seconds"], result["log_likelihood"]
        mean, error = result["difference"]
        cells = [f"`{result['model']}`", result["name"], f"{old:.1f}", f"{new:.1f}", f"{old / new:.1f}"]
        rows.append(" | ".join([*cells, f"{low:.3f}", f"{high:.3f}", f"{mean:+.3f} ± {error:.3f}"]))
    return INTRODUCTION + "".join(f"| {row} |\n" for row in rows)


def main() -> None:
    """Measure everything, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="folder with the package of the earlier version")
    before = parser.parse_args().before
    results = []
    for model, names in FITS.items():
        for name in names:
            results.append(compare(before, model, name))
            print(results[-1], flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
