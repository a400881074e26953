import itertools

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

from inducing.inference.batches import augmented, batches

X, Y = torch.arange(10.0)[:, None], -torch.arange(10.0)[:, None]


def take(data, batch_size, count, seed=0):
    found = batches(data, batch_size, seed)
    return found, list(itertools.islice(found.since(0), count))


@pytest.mark.parametrize("data", [(X, Y), TensorDataset(X, Y)], ids=["tensors", "dataset"])
def test_an_epoch_is_every_row_once_in_a_new_order(data):
    found, parts = take(data, 4, 6)
    assert (found.num_data, found.steps_per_epoch) == (10, 3)
    epochs = [torch.cat([x for x, _ in parts[i : i + 3]]).flatten() for i in (0, 3)]
    assert all(torch.equal(epoch.sort().values, X.flatten()) for epoch in epochs)
    assert not torch.equal(epochs[0], epochs[1])
    assert all(torch.equal(x, -y) for x, y in parts)


@pytest.mark.parametrize("data", [(X, Y), TensorDataset(X, Y)], ids=["tensors", "dataset"])
def test_the_seed_decides_the_order(data):
    first, second, other = (torch.cat([x for x, _ in take(data, 4, 3, seed)[1]]) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("data", [(X, Y), TensorDataset(X, Y)], ids=["tensors", "dataset"])
@pytest.mark.parametrize("step", [1, 3, 5])
def test_the_stream_can_be_taken_up_at_any_step(data, step):
    found, parts = take(data, 4, 8)
    later = list(itertools.islice(found.since(step), 8 - step))
    assert found.repeatable
    assert all(torch.equal(a[0], b[0]) for a, b in zip(parts[step:], later, strict=True))


def test_a_loader_that_shuffles_by_itself_cannot_be_repeated():
    loader = DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True)
    assert not batches(loader, 4, 0).repeatable
    weighted = WeightedRandomSampler(torch.ones(10), 10)
    assert not batches(
        DataLoader(TensorDataset(X, Y), 4, sampler=weighted, generator=torch.Generator()), 4, 0
    ).repeatable
    assert batches(DataLoader(TensorDataset(X, Y), batch_size=4), 4, 0).repeatable, "rows in order"
    loader = DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True, generator=torch.Generator())
    assert batches(loader, 4, 0).repeatable


class Once:
    """A sampler that is used up after one epoch."""

    def __init__(self):
        self.rows = iter(range(10))

    def __iter__(self):
        return self.rows

    def __len__(self):
        return 10


def test_a_loader_that_is_used_up_is_an_error_and_not_an_endless_loop():
    loader = DataLoader(TensorDataset(X, Y), batch_size=5, sampler=Once())
    with pytest.raises(ValueError, match="no batches in epoch 2"):
        take(loader, 5, 3)


def test_a_large_batch_is_the_whole_set():
    _, parts = take((X, Y), 100, 2)
    assert all(x is X and y is Y for x, y in parts)


def test_weights_go_with_their_rows():
    source = batches((X, Y, 2 * X[:, 0]), 4, 0)
    assert source.num_data == 90
    for x, y, weights in itertools.islice(source.since(0), 3):
        assert torch.equal(y, -x)
        # relative to their mean, 9
        torch.testing.assert_close(weights, 2 * x[:, 0] / 9)


def test_a_loader_keeps_its_batches():
    found, parts = take(DataLoader(TensorDataset(X, Y), batch_size=5), 3, 3)
    assert (found.num_data, found.steps_per_epoch) == (10, 2)
    assert [len(x) for x, _ in parts] == [5, 5, 5]


def test_a_sampler_says_how_many_data_there_are():
    loader = DataLoader(TensorDataset(X, Y), batch_size=2, sampler=SubsetRandomSampler(range(6)))
    assert batches(loader, 4, 0).num_data == 6


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(X[0], Y[0])])


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (X, TypeError, "a pair .* a Dataset or a DataLoader, got Tensor"),
        ((X, Y, Y, Y), TypeError, "got tuple"),
        ((X, Y, Y), ValueError, r"weights must have shape \(10,\), one for each row, got \(10, 1\)"),
        ((X, Y, X[:, 0].numpy()), TypeError, "weights must be a torch.Tensor, got ndarray"),
        ((X, Y, X[:, 0] / 0), ValueError, "weights contains NaN or inf"),
        ((X, Y, Y[:, 0]), ValueError, "weights must not be negative, but row 1 has -1"),
        ((X, Y, 0 * X[:, 0]), ValueError, "all weights are zero"),
        ((X.numpy(), Y), TypeError, "x must be a torch.Tensor, got ndarray"),
        (((X, X), Y), TypeError, "x must be a torch.Tensor, got tuple; concatenate its tensors"),
        (({"a": X}, Y), TypeError, "x must be a torch.Tensor, got dict; concatenate its tensors"),
        ((X, Y[:3]), ValueError, "same number of rows"),
        ((X[:0], Y[:0]), ValueError, "zero rows"),
        (TensorDataset(X[:0], Y[:0]), ValueError, "zero rows"),
        (DataLoader(TensorDataset(X, Y), batch_size=64, drop_last=True), ValueError, "no batches"),
        (DataLoader(Stream()), TypeError, "no length"),
    ],
)
def test_bad_data_are_refused(data, error, message):
    with pytest.raises(error, match=message):
        take(data, 4, 1)


def test_bad_batches_are_refused():
    with pytest.raises(TypeError, match="must be a pair"):
        take(TensorDataset(X, Y, Y), 4, 1)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        take((X, Y), 0, 1)


def test_augmented_batches_depend_on_the_step_and_the_seed_alone():
    x, y = torch.zeros(12, 2), torch.arange(12)

    def noisy(inputs, generator):
        return inputs + torch.randn(inputs.shape, generator=generator)

    def first(seed, step, count=1):
        source = augmented(batches((x, y), 4, 0), noisy, seed)
        return [rows for rows, _ in itertools.islice(source.since(step), count)]

    four = first(0, 0, 4)
    assert torch.equal(four[3], first(0, 3)[0])
    assert not torch.equal(four[0], four[1])
    assert not torch.equal(four[0], first(1, 0)[0])
    assert torch.equal(x, torch.zeros(12, 2))
