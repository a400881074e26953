"""Memory of a training step of the image experiments on a GPU, estimated without one.

    python -m benchmarks.gpu_memory      # gpu_memory.md, seconds

A step of the preset `gpu` is run on torch's meta device, which has shapes but no numbers. The estimate is the sum of
parameters, their gradients and moments, and the tensors that autograd keeps for the draw and for one micro-batch.
Work space of libraries, factors of matrices and fragmentation come on top of it. These presets have never been run on a GPU.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import inducing
from inducing.experiments import images
from inducing.files import write_atomically

PAGE = Path(__file__).parents[1] / "benchmarks" / "gpu_memory.md"
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
INTRODUCTION = """# Memory of image experiments on a GPU

Made by `python -m benchmarks.gpu_memory`, without a GPU: GiB that a training step of the preset `gpu` keeps. The
presets have never been run.

| experiment | prior | posterior | inducing images | micro-batch | parameters and moments | draw | micro-batch | all |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""
# torch has no rules for draws from Gamma distributions on the meta device
GAMMA = {
    "_standard_gamma": lambda concentration, generator=None: torch.empty_like(concentration),
    "_standard_gamma_grad": lambda concentration, sample: torch.empty_like(sample),
}


class Kept:
    """Bytes of the tensors that autograd keeps, each storage once."""

    def __init__(self) -> None:
        self.storages: dict[int, Any] = {}

    def pack(self, tensor: Tensor) -> Tensor:
        """Count a tensor that is kept."""
        storage = tensor.untyped_storage()
        self.storages[storage._cdata] = storage
        return tensor

    @property
    def gibibytes(self) -> float:
        """What has been kept so far."""
        return sum(storage.nbytes() for storage in self.storages.values()) / 2**30


def estimate(config: images.Config) -> tuple[float, float, float]:
    """GiB of parameters with gradients and moments, of the draw, and of a micro-batch."""
    shape = SHAPES[config.dataset]
    points = torch.zeros(config.num_inducing, *shape)
    network = images.build_network(config, points, torch.zeros(config.num_inducing, dtype=torch.long)).to("meta")
    likelihood = inducing.Categorical()
    kept, micro_batch = Kept(), images.MICRO_BATCHES["cuda"]
    with torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda tensor: tensor):
        draw = network.draw(config.train_samples, likelihood=likelihood)
        of_draw = kept.gibibytes
        outputs = draw(torch.zeros(micro_batch, *shape, device="meta"))
        likelihood.log_prob(outputs, torch.zeros(micro_batch, dtype=torch.long, device="meta")).sum()
    numbers = sum(parameter.numel() for parameter in network.parameters())
    # value, gradient and two moments of Adam
    return 4 * 4 * numbers / 2**30, of_draw, kept.gibibytes - of_draw


def main() -> None:
    """Estimate all presets."""
    warnings.simplefilter("ignore")
    library = torch.library.Library("aten", "IMPL")
    for name, rule in GAMMA.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
            library.impl(name, rule, "Meta")
    rows = []
    for experiment in (images.MNIST500, images.CIFAR10, images.RESNET18):
        for config in experiment.configs("gpu"):
            parts = estimate(config)
            cells = [experiment.name, config.prior, config.posterior, config.num_inducing, images.MICRO_BATCHES["cuda"]]
            rows.append(" | ".join([*map(str, cells), *(f"{part:.2f}" for part in (*parts, sum(parts)))]))
            print(rows[-1], flush=True)
    write_atomically(PAGE, (INTRODUCTION + "".join(f"| {row} |\n" for row in rows)).encode())


if __name__ == "__main__":
    main()
