"""New data without a new fit: seconds and test log-likelihoods of the kinds of `inducing.update`, and of a new fit.

    python -m benchmarks.update    # writes benchmarks/update.md, the table of docs/howto/training.md

A network is fitted where the first input is negative. New rows come from where it is positive. One thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

import inducing
from benchmarks.machine import describe, heading
from benchmarks.processes import ROOT

PAGE = ROOT / "benchmarks" / "update.md"
OLD_ROWS, NUM_INDUCING, NUM_STEPS, NUM_DRAWS = 500, 50, 1000, 50
NEW_ROWS = (100, 1000, 10_000)
NOISE = 0.1


def sample(rows: int, sign: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows whose first input has this sign, and targets with noise."""
    x = 3.4 * torch.rand(rows, 2, generator=torch.Generator().manual_seed(seed)) - 1.7
    x[:, 0] = sign * x[:, 0].abs()
    noise = torch.randn(rows, 1, generator=torch.Generator().manual_seed(seed + 1))
    return x, (2 * x[:, :1]).sin() + x[:, :1] * x[:, 1:] + NOISE * noise


def build(name: str, x: Tensor, y: Tensor) -> inducing.Network:
    """An untrained network."""
    points = {"inducing_points": x[:NUM_INDUCING], "inducing_targets": y[:NUM_INDUCING]}
    torch.manual_seed(0)
    if name == "deep Gaussian process":
        return inducing.models.deep_gp(2, 1, 2, **points)
    return inducing.models.mlp(2, 1, [50, 50], **points)


def fitted(name: str, x: Tensor, y: Tensor) -> tuple[inducing.Network, inducing.Gaussian]:
    """A network that was fitted to these rows."""
    network, likelihood = build(name, x, y), inducing.Gaussian(0.05)
    inducing.fit(network, likelihood, (x, y), num_steps=NUM_STEPS, batch_size=500, progress=False)
    return network, likelihood


def cases(name: str, new: tuple[Tensor, Tensor]) -> dict[str, Callable[[], tuple[object, inducing.Gaussian]]]:
    """The ways to take in new rows."""
    old = sample(OLD_ROWS, -1, 0)
    network, likelihood = fitted(name, *old)
    steps = {"batch_size": 500, "progress": False}
    shuffled = torch.randperm(OLD_ROWS + len(new[0]), generator=torch.Generator().manual_seed(0))
    every = [torch.cat(pair)[shuffled] for pair in zip(old, new, strict=True)]
    return {
        "none": lambda: (network, likelihood),
        "last layer": lambda: (inducing.update(network, likelihood, new), likelihood),
        "300 steps": lambda: (inducing.update(network, likelihood, new, 300, **steps), likelihood),
        "new fit to all rows": lambda: fitted(name, *every),
    }


def main() -> None:
    """Measure all cases and write the table."""
    torch.set_num_threads(1)
    tests = [sample(500, sign, 10 + sign) for sign in (-1, 1)]
    lines = [
        f"A network fitted to {OLD_ROWS} rows ({NUM_INDUCING} inducing points, {NUM_STEPS} steps), and new rows from",
        f"another region. Mean test log-likelihoods in both regions, by {NUM_DRAWS} draws, and seconds of the update and",
        "of the prediction of 500 rows on one thread. Made by `python -m benchmarks.update`; other processes used the",
        "other core.",
        f"{heading(describe())}.",
        "",
        "| network | new rows | update | old region | new region | update, s | prediction, s |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for name in ("BNN", "deep Gaussian process"):
        for rows in NEW_ROWS:
            for update, run in cases(name, sample(rows, 1, 5)).items():
                start = time.perf_counter()
                network, likelihood = run()
                middle = time.perf_counter()
                scores = [inducing.predict(network, likelihood, x, NUM_DRAWS).log_prob(y).mean() for x, y in tests]
                seconds = middle - start, (time.perf_counter() - middle) / 2
                times = " | ".join(f"{each:.2f}" for each in seconds)
                lines.append(f"| {name} | {rows:,} | {update} | {scores[0]:.2f} | {scores[1]:.2f} | {times} |")
                print(lines[-1], flush=True)
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
