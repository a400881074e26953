"""Endless minibatches from a pair of tensors, a Dataset or a DataLoader.

The order of an epoch is a function of the seed and the number of the epoch alone, so a run that was interrupted goes on
with exactly the batches that it would have had.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Iterator, Sized
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, SequentialSampler

from inducing.checks import check_rows, check_tensor, check_weights, check_whole
from inducing.linalg.noise import seeded

Data = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor] | Dataset | DataLoader
# inputs, targets, and weights where there are any
Batch = tuple[Tensor, ...]
# (inputs, generator) -> inputs
Augment = Callable[[Tensor, Generator], Tensor]


class Batches(NamedTuple):
    """A source of batches.

    Arguments:
        since: Gives the endless stream of batches from a step on.
        num_data: Number of data points behind them; with weights, their sum.
        steps_per_epoch: Number of batches that make an epoch.
        repeatable: Whether the order is decided by the seed; not so for a DataLoader that shuffles by itself.
    """

    since: Callable[[int], Iterator[Batch]]
    num_data: int | float
    steps_per_epoch: int
    repeatable: bool


def batches(data: Data, batch_size: int, seed: int, check: Callable[[Tensor, Tensor], None] = check_rows) -> Batches:
    """Make a source of batches.

    Arguments:
        data: A pair (x, y) of tensors, or (x, y, weights), where a row of weight 2 counts as two; a Dataset of pairs; or a
            DataLoader, which keeps its own batch size. Its generator, if it was given one, is set anew for each epoch;
            without one it shuffles by the global state.
        batch_size: Rows in a batch; with as many as there are data, or more, every batch is the whole set.
        seed: Decides the order.
        check: Called once on a pair of tensors, to refuse bad data before any work is done.
    """
    batch_size = check_whole("batch_size", batch_size)
    if isinstance(data, tuple | list) and len(data) in (2, 3):
        x, y = check_tensor("x", data[0]), check_tensor("y", data[1])
        check_rows(x, y)
        check(x, y)
        tensors: Batch = (x, y)
        num_data: int | float = len(x)
        if len(data) == 3:
            relative, num_data = relative_weights(data[2], x)
            tensors = (x, y, relative)
        per_epoch = -(-len(x) // batch_size)
        return Batches(lambda step: _of_tensors(tensors, batch_size, seed, step), num_data, per_epoch, True)
    if isinstance(data, DataLoader):
        loader = data
    elif isinstance(data, Dataset):
        if isinstance(data, Sized) and len(data) == 0:
            raise ValueError("there are no data: the Dataset has zero rows")
        loader = DataLoader(data, batch_size, shuffle=True, generator=torch.Generator())
    else:
        raise TypeError(
            "data must be a pair (x, y) of tensors, or (x, y, weights), a Dataset or a DataLoader, "
            f"got {type(data).__name__}"
        )
    if not (isinstance(loader.dataset, Sized) and isinstance(loader.sampler, Sized)):
        raise TypeError("the data must have a length, so that the KL can be weighed against all of them")
    if len(loader) == 0:
        raise ValueError("there are no data: the DataLoader has no batches; is drop_last set, and the batch too large?")
    if isinstance(loader.sampler, DistributedSampler):
        raise ValueError(
            "the DataLoader has a DistributedSampler; give every process all the data, without it: fit divides the batches "
            "itself"
        )
    in_order = isinstance(loader.sampler, SequentialSampler) and type(loader.batch_sampler) is BatchSampler
    repeatable = in_order or _generator(loader) is not None
    return Batches(lambda step: _of_loader(loader, seed, step), len(loader.sampler), len(loader), repeatable)


def augmented(source: Batches, augment: Augment, seed: int) -> Batches:
    """The same batches with their inputs changed at random; what happens in a step depends on its number and the seed."""

    def since(step: int) -> Iterator[Batch]:
        for number, (x, *rest) in enumerate(source.since(step), step):
            yield augment(x, seeded(seed, f"augmentation of step {number}")), *rest

    return source._replace(since=since)


def augment_identity(augment: Augment | None) -> str | None:
    """What tells one augmentation from another: its name and, of a `functools.partial`, what it fixes."""
    if augment is None:
        return None
    if not isinstance(augment, functools.partial):
        return str(getattr(augment, "__qualname__", type(augment).__qualname__))
    fixed = [_told_apart(value) for value in augment.args]
    fixed += [f"{name}={_told_apart(value)}" for name, value in sorted(augment.keywords.items())]
    return f"{augment_identity(augment.func)}({', '.join(fixed)})"


def _told_apart(value: object) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    return f"tensor {tuple(value.shape)} {zlib.crc32(value.detach().cpu().contiguous().numpy().tobytes()):08x}"


def relative_weights(weights: object, x: Tensor) -> tuple[Tensor, float]:
    """Return the weights of all rows divided by their mean, in the dtype of the inputs, and their sum."""
    given = check_weights(weights, len(x)).detach().double()
    total = float(given.sum())
    return (given * (len(x) / total)).to(x.dtype), total


def _of_tensors(tensors: Batch, batch_size: int, seed: int, step: int) -> Iterator[Batch]:
    x = tensors[0]
    if batch_size >= len(x):
        yield from itertools.repeat(tensors)
    first, skip = divmod(step, -(-len(x) // batch_size))
    for epoch in itertools.count(first):
        order = torch.randperm(len(x), generator=seeded(seed, f"order of epoch {epoch}")).to(x.device)
        for rows in order.split(batch_size)[skip if epoch == first else 0 :]:
            yield tuple(tensor[rows] for tensor in tensors)


def _of_loader(loader: DataLoader, seed: int, step: int) -> Iterator[Batch]:
    first, skip = divmod(step, len(loader))
    for epoch in itertools.count(first):
        generator = _generator(loader)
        if generator is not None:
            generator.set_state(seeded(seed, f"order of epoch {epoch}").get_state())
        number = 0
        for number, batch in enumerate(loader, 1):
            if epoch == first and number <= skip:
                continue
            if not (isinstance(batch, tuple | list) and len(batch) == 2):
                raise TypeError(f"a batch must be a pair (x, y), got {type(batch).__name__}")
            yield batch[0], batch[1]
        if number == 0:
            raise ValueError(
                f"the DataLoader gave no batches in epoch {epoch + 1}. Its sampler must start anew in every epoch, and not "
                "be an iterator that is used up"
            )


def _generator(loader: DataLoader) -> Generator | None:
    """What decides the order of a loader, if it was given one."""
    generator = getattr(loader.sampler, "generator", None)
    return generator if isinstance(generator, Generator) else None
