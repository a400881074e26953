"""An endless stream of mini-batches from tensors, a file of rows, a Dataset or a DataLoader.

The order of an epoch depends only on the seed and the number of the epoch. So a continued run has exactly the batches of an
uninterrupted run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sized
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, SequentialSampler

from inducing.checks import check_rows, check_tensor, check_weights, check_whole
from inducing.inference.row_file import RowFile
from inducing.linalg.noise import seeded

Data = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor] | RowFile | Dataset | DataLoader
# inputs, targets, and optionally weights
Batch = tuple[Tensor, ...]
# (inputs, generator) -> inputs
Augment = Callable[[Tensor, Generator], Tensor]


class Batches(NamedTuple):
    """A source of batches.

    Arguments:
        since: Function from a step to the endless stream of batches from that step on.
        num_data: Number of data points, or the sum of the weights.
        steps_per_epoch: Number of batches in an epoch.
        repeatable: Whether the seed determines the order. False for a DataLoader that shuffles without a generator.
    """

    since: Callable[[int], Iterator[Batch]]
    num_data: int | float
    steps_per_epoch: int
    repeatable: bool


def batches(data: Data, batch_size: int, seed: int, check: Callable[[Tensor, Tensor], object] = check_rows) -> Batches:
    """Create a source of batches.

    Arguments:
        data: A pair (x, y) of tensors, or (x, y, weights), where a row with weight 2 counts as two rows; a Dataset of pairs;
            or a DataLoader, which keeps its own batch size. If the DataLoader has a generator, it is seeded for each epoch.
            Otherwise the DataLoader shuffles with torch's global random state.
        batch_size: Number of rows in a batch. If it is at least the number of rows, every batch is the whole dataset.
        seed: Seed of the order.
        check: Function of (x, y) that raises an error for invalid data. It is called once, and only for tensors.
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
    if isinstance(data, RowFile):
        check(*data.read(0, batch_size))
        per_epoch = data.count_batches(batch_size)
        return Batches(lambda step: data.since(batch_size, seed, step), len(data), per_epoch, True)
    if isinstance(data, DataLoader):
        loader = data
    elif isinstance(data, Dataset):
        if isinstance(data, Sized) and len(data) == 0:
            raise ValueError("the Dataset has zero rows. Pass at least one row")
        loader = DataLoader(data, batch_size, shuffle=True, generator=torch.Generator())
    else:
        raise TypeError(
            "data must be a pair (x, y) of tensors, or (x, y, weights), a Dataset or a DataLoader, "
            f"got {type(data).__name__}"
        )
    if not (isinstance(loader.dataset, Sized) and isinstance(loader.sampler, Sized)):
        raise TypeError("the data have no length, but the weight of the KL depends on it. Pass a Dataset with a length")
    if len(loader) == 0:
        raise ValueError("the DataLoader has no batches. Use a smaller batch_size or drop_last=False")
    if isinstance(loader.sampler, DistributedSampler):
        raise ValueError(
            "the DataLoader has a DistributedSampler, but fit divides the batches itself. Leave it out and pass all data "
            "to every process"
        )
    in_order = isinstance(loader.sampler, SequentialSampler) and type(loader.batch_sampler) is BatchSampler
    repeatable = in_order or _generator(loader) is not None
    return Batches(lambda step: _of_loader(loader, seed, step), len(loader.sampler), len(loader), repeatable)


def augmented(source: Batches, augment: Augment, seed: int) -> Batches:
    """Return batches with augmented inputs. The augmentation of a step depends only on the step and the seed."""

    def since(step: int) -> Iterator[Batch]:
        for number, (x, *rest) in enumerate(source.since(step), step):
            yield augment(x, seeded(seed, f"augmentation of step {number}")), *rest

    return source._replace(since=since)


def relative_weights(weights: object, x: Tensor) -> tuple[Tensor, float]:
    """Return the weights divided by their mean, in the dtype of the inputs, and their original sum."""
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
                f"the DataLoader returned no batches in epoch {epoch + 1}. Its sampler must start again in every epoch"
            )


def _generator(loader: DataLoader) -> Generator | None:
    """Return the generator of a loader, or None."""
    generator = getattr(loader.sampler, "generator", None)
    return generator if isinstance(generator, Generator) else None
