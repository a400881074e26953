"""Peak memory of a training step with and without micro-batches.

    python -m benchmarks.micro_batches      # micro_batches.md, a minute

Each measurement is a fresh process with one thread. It reports by how much three steps of `fit`, with their set-up, increase
the largest resident memory of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import warnings
from pathlib import Path

from benchmarks.processes import run_worker, threads
from inducing.files import write_atomically

PAGE = Path(__file__).parents[1] / "benchmarks" / "micro_batches.md"
# rows of a batch, and of a micro-batch
SIZES = {"mlp": (10_000, 500), "deep_gp": (10_000, 500), "resnet8": (500, 50)}
TITLES = {
    "mlp": "Bayesian neural network 10-50-50-1, 10 samples, 100 inducing points",
    "deep_gp": "deep Gaussian process with 2 layers, 10 inputs, 10 samples, 100 inducing points",
    "resnet8": "ResNet-8 with 32 channels, 1 sample, 50 inducing images",
}
INTRODUCTION = """# Memory of a step with micro-batches

Made by `python -m benchmarks.micro_batches`: by how many MiB three steps of `fit` increase the peak memory of a process.

| model | batch | whole batch | micro-batches | ratio |
| --- | ---: | ---: | ---: | ---: |
"""


def measure(model: str, micro_batch_size: int | None) -> float:
    """MiB of a training step."""
    import torch

    import inducing

    warnings.simplefilter("ignore")
    rows, generator = SIZES[model][0], torch.Generator().manual_seed(0)
    likelihood: inducing.nn.Likelihood = inducing.Gaussian()
    if model == "resnet8":
        x, y = torch.randn(rows, 3, 32, 32, generator=generator), torch.randint(0, 10, (rows,), generator=generator)
        network = inducing.models.resnet8(channels=32, inducing_points=x[:50], generator=generator)
        likelihood = inducing.Categorical()
    else:
        x = torch.randn(rows, 10, generator=generator)
        y = x[:, :1].sin()
        points = {"inducing_points": x[:100], "inducing_targets": y[:100], "generator": generator}
        if model == "mlp":
            network = inducing.models.mlp(10, 1, [50, 50], **points)
        else:
            network = inducing.models.deep_gp(10, 1, 2, **points)
    samples = 1 if model == "resnet8" else 10
    settings = {"num_steps": 3, "batch_size": rows, "num_samples": samples, "early_samples": None, "progress": False}
    before = _peak()
    inducing.fit(network, likelihood, (x, y), optimal_start=False, micro_batch_size=micro_batch_size, **settings)
    return _peak() - before


def _peak() -> float:
    """Largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def main() -> None:
    """Measure one network, as a worker, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES)
    parser.add_argument("--micro-batch-size", type=int)
    arguments = parser.parse_args()
    if arguments.model:
        print(json.dumps(measure(arguments.model, arguments.micro_batch_size)))
        return
    lines = []
    for model, (rows, piece) in SIZES.items():
        command = [f"--model={model}"]
        whole, pieces = (
            run_worker("micro_batches", [*command, *more], threads(1))[0]
            for more in ([], [f"--micro-batch-size={piece}"])
        )
        lines.append(
            f"| {TITLES[model]} | {rows:,} | {whole:,.0f} | {pieces:,.0f} with {piece} rows | {whole / pieces:.1f} |"
        )
        print(lines[-1], flush=True)
    write_atomically(PAGE, (INTRODUCTION + "\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    main()
