"""How the cost of a training step grows: with M, width, depth, samples and data, with fitted exponents beside the theory."""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch

import inducing
from benchmarks import operations
from benchmarks.machine import describe, heading
from benchmarks.measure import alternate
from benchmarks.workloads import Step, our_network, training_step


@dataclass(frozen=True)
class Sizes:
    """The sizes of a fully connected network with global inducing points and a shared precision."""

    width: int = 50
    depth: int = 2
    num_data: int = 200
    num_inducing: int = 100
    num_samples: int = 5

    @property
    def widths(self) -> list[int]:
        """Inputs, hidden units and outputs."""
        return [13, *[self.width] * self.depth, 1]

    def step(self) -> Step:
        """A training step."""
        network, x, y = our_network(self.widths, self.num_data, self.num_inducing, "shared")
        return training_step(network, x, y, self.num_samples)

    def operations(self) -> float:
        """What it needs."""
        sizes = self.num_data, self.num_inducing, self.num_samples
        return operations.dense(self.widths, *sizes, per_output=False)


SWEEPS: dict[str, tuple[list[int], Callable[[int], Sizes], str]] = {
    "M": (
        [25, 50, 100, 200, 400, 800],
        lambda size: Sizes(num_inducing=size),
        "linear above the fan-in, M^3 in the dual form below it",
    ),
    "width": ([25, 50, 100, 200, 400, 800], lambda size: Sizes(width=size), "cubic below M, quadratic above it"),
    "depth": ([1, 2, 4, 8, 16], lambda size: Sizes(depth=size), "linear"),
    "S": ([1, 4, 16, 64], lambda size: Sizes(num_samples=size), "linear"),
    "data": ([100, 400, 1600, 6400, 25600], lambda size: Sizes(num_data=size), "linear"),
}


WORDS = {
    "M": "Inducing points",
    "width": "Width",
    "depth": "Hidden layers",
    "S": "Samples",
    "data": "Rows of the batch",
}


def exponent(sizes: list[int], costs: list[float]) -> float:
    """The slope of the logarithms, by least squares."""
    x, y = torch.tensor(sizes).double().log(), torch.tensor(costs).double().log()
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y) / (x @ x))


def page(seconds: float, least: int) -> str:
    """All sweeps as Markdown."""
    default = Sizes()
    lines = [
        "# How the cost grows",
        "",
        "Made by `python -m benchmarks.bench --growth`. A training step of a fully connected network, 13 inputs and 1",
        f"output, shared precision, float32; threads: {torch.get_num_threads()}. Where nothing else is said: "
        f"{default.depth} hidden layers of {default.width},",
        f"M = {default.num_inducing}, S = {default.num_samples}, {default.num_data} data. Milliseconds, the fastest of "
        "several runs that go round all sizes.",
        "Exponents: the slope of the logarithms over the upper half of the sizes, where the fixed cost of a call matters",
        "least; beside it that of the number of operations (`benchmarks/operations.py`).",
        "",
        f"{heading(describe())}.",
    ]
    for name, (sizes, make, theory) in SWEEPS.items():
        settings = [make(size) for size in sizes]
        times = [timing.fastest for timing in alternate([each.step() for each in settings], seconds, least)]
        half = math.ceil(len(sizes) / 2)
        measured = exponent(sizes[-half:], times[-half:])
        counted = exponent(sizes[-half:], [each.operations() for each in settings][-half:])
        rows = [name, *map(str, sizes)], ["---"] * (len(sizes) + 1), ["ms", *(f"{1e3 * time:.3g}" for time in times)]
        lines += ["", f"## {WORDS[name]}", ""]
        lines += [f"In theory {theory}. Exponent {measured:.2f}, of the operations {counted:.2f}.", ""]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, ""])


def main() -> None:
    """Print the page in JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True, help="for each sweep; 0 for a single run of each size")
    seconds = parser.parse_args().seconds
    warnings.simplefilter("ignore", inducing.DataWarning)
    print(json.dumps({"page": page(seconds, 3 if seconds else 1)}))
