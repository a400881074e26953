"""Rows in a file: every row once in an epoch, in an order that the seed decides, from any step on."""

import itertools
import math

import pytest
import torch

import inducing
from inducing.inference import row_file
from inducing.inference.batches import batches
from inducing.inference.row_file import RowFile

X, Y = torch.arange(50.0).reshape(25, 2), torch.arange(25, dtype=torch.float64)[:, None]


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(row_file, "GROUP", 3)
    parts = [(X[:7], Y[:7]), (X[7:8], Y[7:8]), (X[8:], Y[8:])]
    return RowFile.write(tmp_path / "rows", parts, {"table": "t.csv"})


def take(file, count, seed=0, step=0):
    return list(itertools.islice(batches(file, 4, seed).since(step), count))


def test_an_epoch_is_every_row_once_in_a_new_order(file):
    source = batches(file, 4, 0)
    assert (source.num_data, source.steps_per_epoch, source.repeatable) == (25, 7, True)
    parts = take(file, 14)
    assert sorted(len(x) for x, _ in parts[:7]) == [1, 4, 4, 4, 4, 4, 4]
    epochs = [torch.cat([y for _, y in parts[i : i + 7]]).flatten() for i in (0, 7)]
    assert all(torch.equal(epoch.sort().values, Y.flatten()) for epoch in epochs)
    assert not torch.equal(epochs[0], epochs[1])
    for x, y in parts:
        assert x.dtype == y.dtype == torch.float64
        assert torch.equal(x[:, :1], 2 * y)


def test_rows_of_several_blocks_are_mixed(file):
    (x, _) = take(file, 1)[0]
    assert len({int(row) // 8 for row in x[:, 0]}) > 1


@pytest.mark.parametrize("step", [1, 3, 6, 7, 11])
def test_the_stream_can_be_taken_up_at_any_step(file, step):
    for (x, y), (later_x, later_y) in zip(take(file, 16)[step:], take(file, 16 - step, step=step), strict=True):
        assert torch.equal(x, later_x)
        assert torch.equal(y, later_y)


def test_the_seed_decides_the_order(file):
    first, same, other = (torch.cat([y for _, y in take(file, 7, seed)]) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_labels(tmp_path):
    file = RowFile.write(tmp_path / "rows", [(X, torch.arange(25))], {})
    _, labels = file.read(3, 2)
    assert labels.tolist() == [3, 4]
    assert labels.dtype == torch.int64


def test_a_file_is_found_again_only_if_it_is_complete_and_from_the_same_source(file):
    assert RowFile.find(file.path, {"table": "t.csv"}) == file
    assert RowFile.find(file.path, {"table": "u.csv"}) is None
    file.path.write_bytes(file.path.read_bytes()[:-1])
    assert RowFile.find(file.path, {"table": "t.csv"}) is None
    file.path.unlink()
    assert RowFile.find(file.path, {"table": "t.csv"}) is None
    file.path.with_suffix(".json").write_text("[]")
    assert RowFile.find(file.path, {"table": "t.csv"}) is None


def test_nothing_is_written_without_rows(tmp_path):
    with pytest.raises(ValueError, match="no rows"):
        RowFile.write(tmp_path / "rows", [], {})
    assert RowFile.find(tmp_path / "rows", {}) is None


def test_fit_continues_with_other_rows_only_as_an_error(file, tmp_path):
    def train(rows, steps):
        points = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
        generator = torch.Generator().manual_seed(0)
        network = inducing.models.mlp(2, 1, [3], inducing_points=points, generator=generator).double()
        settings = {"schedule": "constant", "early_samples": None, "batch_size": 4, "num_steps": steps}
        folder = tmp_path / "checkpoint"
        return inducing.fit(network, inducing.Gaussian().double(), rows, checkpoint=folder, progress=False, **settings)

    first, longer = train(file, 3), train(file, 5)
    assert longer.elbo[:3] == first.elbo
    other = RowFile.write(tmp_path / "other", [(X + 1, Y)], {})
    with pytest.raises(inducing.errors.CheckpointError, match="data"):
        train(other, 6)


def test_a_target_may_be_missing_in_the_first_rows(tmp_path):
    y = Y.repeat(1, 2)
    y[:8, 1] = torch.nan
    file = RowFile.write(tmp_path / "rows", [(X / 50, y / 25)], {})
    network = inducing.models.mlp(2, 2, [3], num_inducing=4).double()
    history = inducing.fit(network, inducing.Gaussian().double(), file, batch_size=4, num_steps=7, progress=False)
    assert all(math.isfinite(record.elbo) for record in history)


def test_inputs_that_are_too_large_are_refused(tmp_path):
    x = X.double()
    x[3, 1] = -1e39
    with pytest.raises(ValueError, match="input 1 has the standardised value -1e\\+39"):
        RowFile.write(tmp_path / "rows", [(x, Y)], {})
