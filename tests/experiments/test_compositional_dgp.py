from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from inducing.experiments import compositional_dgp as compositional
from inducing.experiments.engine import sweep
from inducing.experiments.engine.store import Store

QUICK = compositional.Config(num_data=30, num_steps=3, num_inducing=10, train_samples=2, test_samples=10)


def test_the_smoke_preset_fills_the_store_and_draws_the_figure(tmp_path, capsys):
    experiment = compositional.COMPOSITIONAL_DGP
    sweep.reproduce(experiment, "smoke", tmp_path, console=Console(width=200))
    results = Store(tmp_path / "compositional-dgp.jsonl").results().values()
    assert [result["config"]["posterior"] for result in results] == list(experiment.grid["posterior"])
    for result in results:
        metrics = result["metrics"]
        assert metrics["elbo_per_datapoint"] == pytest.approx(metrics["log_likelihood"] - metrics["kl"])
        assert len(metrics["layer_variance"]) == len(metrics["lengthscale"]) == len(metrics["kernel_variance"]) == 2
        assert min(metrics["layer_variance"]) > 0
        assert list(metrics["curves"]) == ["layer 1", "layer 2", "output"]
        for curve in metrics["curves"].values():
            assert np.array(curve["draws"]).shape == (compositional.DRAWN_FUNCTIONS, len(compositional.GRID))
            assert len(curve["x"]) == len(curve["mean"]) == len(curve["std"]) == len(compositional.GRID)
        assert min(metrics["curves"]["output"]["std"]) >= result["config"]["noise_std"] - 1e-5
    assert (tmp_path / "compositional-dgp-smoke.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("V[F2]", "outside", "local", "global"))


@pytest.mark.parametrize("posterior", ["local", "global", "dsvi", "coupled"])
def test_every_posterior_runs_and_the_seed_decides(posterior):
    config = replace(QUICK, posterior=posterior)
    first, again, other = (compositional.run(replace(config, split=split), progress=False) for split in (0, 0, 1))
    assert first == again
    assert first["elbo_per_datapoint"] != other["elbo_per_datapoint"]


def test_the_global_random_state_is_untouched():
    before = torch.get_rng_state()
    compositional.run(QUICK, progress=False)
    assert torch.equal(before, torch.get_rng_state())


def test_the_output_is_the_composition_of_the_layers():
    curves = compositional.run(QUICK, progress=False)["curves"]
    first, second, output = (curves[name] for name in ("layer 1", "layer 2", "output"))
    for hidden, f, composed in zip(first["draws"], second["draws"], output["draws"], strict=True):
        inside = (np.array(hidden) > second["x"][0]) & (np.array(hidden) < second["x"][-1])
        np.testing.assert_allclose(
            np.interp(np.array(hidden)[inside], second["x"], f), np.array(composed)[inside], atol=2e-3
        )


@pytest.mark.slow
def test_only_global_inducing_keeps_the_layers_uncertain():
    """The paper's figure in numbers."""
    config = compositional.Config(recipe="fast", num_steps=1000, num_inducing=50)
    local, best = (
        compositional.run(replace(config, posterior=posterior), progress=False) for posterior in ("local", "global")
    )
    assert best["elbo_per_datapoint"] > local["elbo_per_datapoint"] + 0.02
    for layer in range(2):
        assert local["layer_variance"][layer] < 0.02
        assert best["layer_variance"][layer] > 0.1
