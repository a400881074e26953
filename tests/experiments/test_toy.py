import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

import inducing
from inducing.data.toy import cubic
from inducing.experiments import toy
from inducing.linalg.noise import seeded

QUICK = toy.Config(num_steps=20, train_samples=2, test_samples=10, num_inducing=10)


def test_the_demo_writes_its_figure_and_its_numbers(tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    results = toy.demo(out, 20, 0, Console(width=160))
    written = json.loads((out / "toy.json").read_text())
    assert list(written) == ["factorised", "local", "global", "factorised->global"]
    for result in results:
        numbers = written[result["config"]["posterior"]]
        assert set(numbers) == {"elbo_per_datapoint", "log_likelihood", "kl", "layer_variance"}
        assert len(numbers["layer_variance"]) == 3
        assert numbers["elbo_per_datapoint"] == pytest.approx(numbers["log_likelihood"] - numbers["kl"])
        assert numbers["elbo_per_datapoint"] == result["metrics"]["elbo_per_datapoint"]
    assert (out / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert "-2.24" in capsys.readouterr().out, "the paper's ELBO stands beside ours"
    assert sorted(path.name for path in out.iterdir()) == ["toy.json", "toy.png"]


def test_the_same_seed_gives_the_same_numbers():
    first, again, other = (toy.run(replace(QUICK, split=split), progress=False) for split in (0, 0, 1))
    assert first == again
    assert first["elbo_per_datapoint"] != other["elbo_per_datapoint"]


def test_the_global_random_state_is_untouched():
    before = torch.get_rng_state()
    toy.run(replace(QUICK, posterior="factorised"), progress=False)
    assert torch.equal(before, torch.get_rng_state())


def test_layer_variances_under_the_prior_are_known():
    """NealPrior: (E[x^2] + 1) / 2 = 1 in the first layer, (width E[relu(x)^2] + 1) / (width + 1) above."""
    network = inducing.models.mlp(1, 1, [50, 50], posterior="prior")
    variances = toy.layer_variances(network, 2000, seeded(0, "test"), num_inputs=300)
    assert variances == pytest.approx([1.0, 26 / 51, 26 / 51], rel=0.15)


@pytest.mark.slow
def test_global_inducing_is_by_far_the_best():
    """The paper's Fig. 1 in numbers: ELBOs, and error bars in the gap and outside of the data."""
    results = {
        p: toy.run(toy.Config(posterior=p, num_steps=3000), progress=False) for p in ("factorised", "local", "global")
    }
    elbo = {name: result["elbo_per_datapoint"] for name, result in results.items()}
    std = {name: np.array(result["std"]) for name, result in results.items()}
    assert -2.5 < elbo["global"] < -1.0
    assert elbo["global"] > max(elbo["factorised"], elbo["local"]) + 2
    noise = math.sqrt(cubic().noise_variance)
    gap, outside = abs(toy.GRID) < 0.2, abs(toy.GRID) > 1.7
    assert std["global"][gap].mean() > 1.3 * noise
    assert std["global"][outside].mean() > 1.5 * noise
    assert std["factorised"][gap].mean() < 1.3 * noise
