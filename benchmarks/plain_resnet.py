"""A plain ResNet-8 for CIFAR-10 and its training, in ordinary torch code."""

from __future__ import annotations

import copy
import time
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

CHANNELS, BATCH, LEARNING_RATE = 16, 100, 3e-3


class Block(nn.Module):
    """A residual block: two convolutions with BatchNorm, and a projection where the size of the map changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


def resnet8(channels: int = CHANNELS) -> nn.Sequential:
    """ResNet-8: a convolution, three blocks, a linear layer. The last block and what follows are modules 5 to 8."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, 1, 1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        Block(channels, channels, 1),
        Block(channels, 2 * channels, 2),
        Block(2 * channels, 4 * channels, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * channels, 10),
    )


def train(module: nn.Module, x: Tensor, y: Tensor, epochs: int) -> float:
    """Train with Adam, without augmentation. Return the processor seconds."""
    start = time.process_time()
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(module.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, epochs * (len(x) // BATCH))
    module.train()
    for epoch in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(x), generator=generator).split(BATCH)[: len(x) // BATCH]:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        print(
            f"epoch {epoch + 1}: loss {total / (len(x) // BATCH):.3f}, {time.process_time() - start:.0f} s", flush=True
        )
    module.eval()
    return time.process_time() - start


def trained(folder: Path, x: Tensor, y: Tensor, epochs: int) -> tuple[nn.Sequential, float]:
    """The trained network, from the folder if it is there, and the processor seconds of its training."""
    torch.manual_seed(0)
    module, file = resnet8(), folder / f"resnet8-{len(x)}-{epochs}.safetensors"
    if not file.exists():
        channels_last = copy.deepcopy(module).to(memory_format=torch.channels_last)
        seconds = train(channels_last, x.contiguous(memory_format=torch.channels_last), y, epochs)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.contiguous() for name, tensor in channels_last.state_dict().items()}
        save_file(tensors, file, {"seconds": str(seconds)})
    with safe_open(file, "pt") as opened:
        module.load_state_dict({name: opened.get_tensor(name) for name in opened.keys()})  # noqa: SIM118
        return module.eval(), float(opened.metadata()["seconds"])
