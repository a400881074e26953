"""What falls to each rank; that the parts make the whole is tested with two processes, in test_ranks.py."""

import pytest
import torch

import inducing
from inducing.inference.parallel.division import Division, shares
from inducing.inference.parallel.ranks import Ranks


@pytest.mark.parametrize(("rows", "size"), [(10, 3), (2, 4), (7, 7)])
def test_shards_are_a_partition(rows, size):
    batch = (torch.arange(rows), torch.arange(rows))
    for parallel in ("data", "rows"):
        parts = [Division(Ranks(rank, size), parallel).rows(batch)[0] for rank in range(size)]
        assert torch.cat(parts).sort().values.tolist() == list(range(rows))
    assert sum(shares(rows, size)) == rows
    assert sum(Division(Ranks(rank, size), "samples").weight(rows) for rank in range(size)) == pytest.approx(1)


@pytest.mark.parametrize("parallel", ["data", "samples", "rows"])
def test_every_row_and_sample_counts_once(parallel):
    """Five rows whose log-likelihoods are their numbers, over three ranks: the weighted sum is that of one process."""
    values, num_samples = torch.arange(5.0), 7
    divisions = [Division(Ranks(rank, 3), parallel) for rank in range(3)]
    scaled = [each.rows((values,))[0].sum() * 5 / each.num_rows(5) for each in divisions]
    weights = [each.weight(num_samples) for each in divisions]
    assert sum(w * v for w, v in zip(weights, scaled, strict=True)) == pytest.approx(values.sum())
    drawn = [each.num_samples(num_samples) for each in divisions]
    assert drawn == ([3, 2, 2] if parallel == "samples" else [7, 7, 7])


def test_noise_is_shared_or_independent():
    names = {
        way: [Division(Ranks(rank, 3), way).noise("step 1") for rank in range(3)] for way in ("data", "samples", "rows")
    }
    assert len(set(names["rows"])) == 1
    assert len(set(names["data"])) == len(set(names["samples"])) == 3
    # the first has the stream of a process that is alone
    assert names["data"][0] == names["rows"][0] == "step 1"


def test_unknown_ways_to_divide_are_refused():
    x = torch.zeros(4, 1)
    network = inducing.models.mlp(1, 1, [5], num_inducing=3)
    with pytest.raises(ValueError, match="parallel must be one of data, samples, rows, or None, got 'model'"):
        inducing.fit(network, inducing.Gaussian(), (x, x), num_steps=1, parallel="model")
    with pytest.raises(ValueError, match="parallel must be one of samples, rows, or None, got 'data'"):
        inducing.predict(network, inducing.Gaussian(), x, parallel="data")
