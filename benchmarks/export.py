"""Milliseconds of sampled functions in torch, compiled, and in onnxruntime.

    python -m benchmarks.export    # writes benchmarks/export.md, the table of docs/howto/export.md

One thread, the three in turns, the fastest of many runs.
"""

from __future__ import annotations

import logging
import tempfile
import time
from pathlib import Path

import onnxruntime
import torch

import inducing
from benchmarks.machine import describe, heading
from benchmarks.measure import alternate
from benchmarks.processes import ROOT

PAGE = ROOT / "benchmarks" / "export.md"
# of runs for each case
SECONDS = 10


def cases() -> dict[str, tuple[inducing.FunctionSamples, torch.Tensor]]:
    """Functions and a batch for each."""
    generator = torch.Generator().manual_seed(0)
    rows, images = torch.randn(1000, 8, generator=generator), torch.randn(64, 3, 16, 16, generator=generator)
    bnn = inducing.models.mlp(8, 1, [50, 50], num_inducing=50)
    process = inducing.models.deep_gp(8, 1, 2, inducing_points=rows[:100])
    resnet = inducing.models.resnet8((3, 16, 16), channels=16, inducing_points=images[:20])
    return {
        "BNN with 50, 50 hidden units, 100 draws, 1,000 rows": (bnn.sample_functions(100), rows),
        "deep Gaussian process, 2 layers, 20 draws, 1,000 rows": (process.sample_functions(20), rows),
        "ResNet-8 with 16 channels, 8 draws, 64 images of 16 x 16": (resnet.sample_functions(8), images),
    }


def measure(functions: inducing.FunctionSamples, x: torch.Tensor) -> list[float]:
    """Milliseconds in torch, compiled and in onnxruntime, and seconds of the compilation."""
    compiled = torch.compile(functions, fullgraph=True)
    start = time.perf_counter()
    compiled(x)
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        functions.export(path := Path(folder) / "functions.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options)
    batch = {"x": x.numpy()}
    with torch.no_grad():
        ways = (lambda: functions(x), lambda: compiled(x), lambda: session.run(None, batch))
        return [*(1000 * timing.fastest for timing in alternate(ways, SECONDS)), seconds]


def main() -> None:
    """Measure all cases and write the table."""
    torch.set_num_threads(1)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    lines = [
        "Milliseconds of one batch on one thread, the fastest of many runs, made by `python -m benchmarks.export`.",
        f"{heading(describe())}, onnxruntime {onnxruntime.__version__}.",
        "",
        "| functions | torch | compiled | onnxruntime | time to compile |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, (functions, x) in cases().items():
        *milliseconds, seconds = measure(functions, x)
        lines.append(f"| {name} | {' | '.join(f'{each:.0f}' for each in milliseconds)} | {seconds:.0f} s |")
        print(lines[-1], flush=True)
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
