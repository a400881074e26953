"""Workloads on images: a training step of the paper's ResNet-8, beside a step of the plain network on the same batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import inducing
from inducing.inference.state import TrainingState

CHANNELS, CLASSES = 32, 10

Step = Callable[[], object]


class PlainBlock(nn.Module):
    """A residual block of the plain network."""

    def __init__(self) -> None:
        super().__init__()
        first, second = (nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(2))
        self.branch = nn.Sequential(first, nn.ReLU(), second, nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch."""
        return x + self.branch(x)


def plain_network() -> nn.Module:
    """`inducing.models.resnet8` with weights instead of posteriors."""
    blocks = [PlainBlock(), nn.AvgPool2d(2), PlainBlock(), nn.AvgPool2d(2), PlainBlock(), nn.AdaptiveAvgPool2d(1)]
    last = nn.Linear(CHANNELS, CLASSES)
    return nn.Sequential(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.ReLU(), *blocks, nn.Flatten(), last)


def smooth_images(number: int) -> tuple[Tensor, Tensor]:
    """Standard normal images whose neighbouring pixels are correlated as in photographs, and their classes."""
    coarse = functional.interpolate(torch.randn(number, 3, 8, 8), size=(32, 32), mode="bilinear")
    images = coarse + 0.3 * torch.randn(number, 3, 32, 32)
    return images / images.std(), torch.randint(CLASSES, (number,))


def global_network(num_inducing: int) -> inducing.Network:
    """The paper's network for CIFAR-10."""
    points, labels = smooth_images(num_inducing)
    targets = functional.one_hot(labels, CLASSES).float()
    return inducing.models.resnet8(
        channels=CHANNELS, prior="spatial-iw", inducing_points=points, inducing_targets=targets
    )


def training_step(batch: int, num_inducing: int) -> tuple[Step, Step]:
    """A training step with one sample, and one of the plain network."""
    torch.manual_seed(0)
    (x, y), network, plain = smooth_images(batch), global_network(num_inducing), plain_network()
    elbo = inducing.ELBO(network, inducing.Categorical(), 50_000)
    state = TrainingState(list(elbo.parameters()), 1e-3, num_steps=1, num_layers=len(network.layer_names))
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-3, fused=True)

    def ours() -> None:
        state.optimizer.zero_grad()
        (-elbo(x, y, 1).objective / 50_000).backward()
        state.optimizer.step()

    def other() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(plain(x), y).backward()
        optimizer.step()

    return ours, other


def pieces(batch: int, piece: int) -> tuple[Step, Step]:
    """A batch through drawn weights, forward and backward, at once; and the same batch in pieces."""
    torch.manual_seed(0)
    (x, y), network = smooth_images(batch), global_network(10)
    drawn = network.draw(1).function.map(lambda tensor: tensor.detach().requires_grad_())

    def run(rows: Tensor, classes: Tensor) -> None:
        functional.cross_entropy(drawn(rows[None])[0], classes, reduction="sum").backward()

    def ours() -> None:
        run(x, y)

    def other() -> None:
        for rows, classes in zip(x.split(piece), y.split(piece), strict=True):
            run(rows, classes)

    return ours, other
