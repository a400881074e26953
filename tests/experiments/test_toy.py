import json
import math

import pytest
import torch
from rich.console import Console

import inducing
from inducing.data.toy import cubic
from inducing.experiments import toy
from inducing.linalg.noise import seeded

QUICK = toy.Settings(num_steps=20, train_samples=2, test_samples=10, num_inducing=10)


def test_the_demo_writes_its_figure_and_its_numbers(tmp_path, capsys):
    results = toy.demo(tmp_path / "new" / "folder", QUICK, Console(width=160))
    written = json.loads((tmp_path / "new" / "folder" / "toy.json").read_text())
    assert list(written) == ["factorised", "local", "global", "factorised->global"]
    for name, numbers in written.items():
        assert set(numbers) == {"elbo_per_datapoint", "log_likelihood", "kl", "layer_variance"}
        assert len(numbers["layer_variance"]) == 3
        assert numbers["elbo_per_datapoint"] == pytest.approx(numbers["log_likelihood"] - numbers["kl"])
        assert numbers["elbo_per_datapoint"] == results[name].elbo_per_datapoint
    assert (tmp_path / "new" / "folder" / "toy.png").read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    assert "-2.24" in shown, "the paper's ELBO stands beside ours"
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == ["toy.json", "toy.png"]


def test_the_same_seed_gives_the_same_numbers():
    first, again = (toy.run(QUICK, "global", progress=False) for _ in range(2))
    assert first[:4] == again[:4]
    assert (
        first.elbo_per_datapoint
        != toy.run(toy.Settings(**{**vars(QUICK), "seed": 1}), "global", False).elbo_per_datapoint
    )


def test_the_global_random_state_is_untouched():
    before = torch.get_rng_state()
    toy.run(QUICK, "factorised", progress=False)
    assert torch.equal(before, torch.get_rng_state())


def test_layer_variances_under_the_prior_are_known():
    """NealPrior: (E[x^2] + 1) / 2 = 1 in the first layer, (width E[relu(x)^2] + 1) / (width + 1) above."""
    network = inducing.models.mlp(1, 1, [50, 50], posterior="prior")
    variances = toy.layer_variances(network, 4000, seeded(0, "test"))
    expected = [1.0, 26 / 51, 26 / 51]
    assert variances == pytest.approx(expected, rel=0.1)


@pytest.mark.slow
def test_global_inducing_is_by_far_the_best():
    """The paper's Fig. 1 in numbers: ELBOs, and error bars in the gap and outside of the data."""
    settings = toy.Settings(num_steps=3000)
    results = {
        posterior: toy.run(settings, posterior, progress=False) for posterior in ("factorised", "local", "global")
    }
    elbo = {name: result.elbo_per_datapoint for name, result in results.items()}
    assert -2.5 < elbo["global"] < -1.0
    assert elbo["global"] > max(elbo["factorised"], elbo["local"]) + 2
    noise = math.sqrt(cubic().noise_variance)
    gap, outside = abs(toy.GRID) < 0.2, abs(toy.GRID) > 2.0
    assert results["global"].std[gap].mean() > 1.3 * noise
    assert results["global"].std[outside].mean() > 2 * noise
    assert results["factorised"].std[gap].mean() < 1.3 * noise
