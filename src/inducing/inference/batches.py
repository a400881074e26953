"""Endless minibatches from a pair of tensors, a Dataset or a DataLoader, in an order that the seed decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset

from inducing.checks import check_rows, check_tensor

Data = tuple[Tensor, Tensor] | Dataset | DataLoader


class Batches(NamedTuple):
    """Where the batches come from, how many data points there are behind them, and how many batches make an epoch."""

    stream: Iterator[tuple[Tensor, Tensor]]
    num_data: int
    steps_per_epoch: int


def batches(
    data: Data, batch_size: int, generator: Generator, check: Callable[[Tensor, Tensor], None] = check_rows
) -> Batches:
    """Make an endless stream of batches.

    Arguments:
        data: A pair (x, y) of tensors, a Dataset of such rows, or a DataLoader, which keeps its own batch size.
        batch_size: Rows in a batch; with as many as there are data, or more, every batch is the whole set.
        generator: Source of the order.
        check: Called once on a pair of tensors, to refuse bad data before any work is done.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if isinstance(data, tuple | list) and len(data) == 2:
        x, y = check_tensor("x", data[0]), check_tensor("y", data[1])
        check_rows(x, y)
        check(x, y)
        return Batches(_shuffled(x, y, batch_size, generator), len(x), -(-len(x) // batch_size))
    if isinstance(data, DataLoader):
        loader = data
    elif isinstance(data, Dataset):
        if isinstance(data, Sized) and len(data) == 0:
            raise ValueError("there are no data: the Dataset has zero rows")
        loader = DataLoader(data, batch_size, shuffle=True, generator=generator)
    else:
        raise TypeError(f"data must be a pair (x, y) of tensors, a Dataset or a DataLoader, got {type(data).__name__}")
    if not isinstance(loader.dataset, Sized):
        raise TypeError("the data must have a length, so that the KL can be weighed against all of them")
    return Batches(_forever(loader), len(loader.dataset), len(loader))


def _shuffled(x: Tensor, y: Tensor, batch_size: int, generator: Generator) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        if batch_size >= len(x):
            yield x, y
            continue
        order = torch.randperm(len(x), generator=generator, device=generator.device).to(x.device)
        for rows in order.split(batch_size):
            yield x[rows], y[rows]


def _forever(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        for batch in loader:
            if not (isinstance(batch, tuple | list) and len(batch) == 2):
                raise TypeError(f"a batch must be a pair (x, y), got {type(batch).__name__}")
            yield batch[0], batch[1]
