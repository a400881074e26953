import dataclasses

import numpy as np
import pytest
import torch
from rich.console import Console

from inducing.data.toy import cubic
from inducing.experiments import toy, toy_hmc

QUICK = toy_hmc.Config(
    posterior="hmc", width=5, hmc_chains=2, hmc_warmup=30, hmc_samples=40, hmc_thin=2, hmc_leapfrog=5
)


def result(posterior, mean, std, **metrics):
    config = dataclasses.asdict(toy_hmc.Config(posterior=posterior))
    return {"config": config, "metrics": {"mean": list(mean), "std": list(std), **metrics}}


@pytest.mark.filterwarnings("ignore:the chains do not agree")
def test_a_run_of_hmc_has_curves_and_diagnostics_but_no_bound():
    before = torch.get_rng_state()
    metrics = toy_hmc.run(QUICK, progress=False)
    assert metrics == toy_hmc.run(QUICK, progress=False), "the split is the seed"
    assert metrics != toy_hmc.run(dataclasses.replace(QUICK, split=1), progress=False)
    assert torch.equal(before, torch.get_rng_state())
    assert set(metrics) == {
        "log_likelihood", "mean", "std", "r_hat", "ess", "acceptance", "divergences", "step_size",
    }  # fmt: skip
    assert len(metrics["mean"]) == len(metrics["std"]) == len(toy.GRID)
    assert min(metrics["std"]) > 0.99 * cubic().noise_variance ** 0.5, "the noise is part of it"


def test_the_regions_are_where_the_data_are_and_are_not():
    where = toy_hmc.regions(np.array([1.0, -1.5, -0.5, 0.4, -0.9]))
    parts = (rows.astype(int) for region, rows in where.items() if region != "all")
    assert sum(parts).tolist() == [1] * 201, "each input is in one of them"
    assert where["all"].all()
    for region, inside, outside in (("data", -1.0, 0.0), ("data", 0.7, 1.2), ("gap", 0.0, 0.7), ("beyond", -1.7, 0.0)):
        assert where[region][np.abs(toy.GRID - inside).argmin()]
        assert not where[region][np.abs(toy.GRID - outside).argmin()]


def test_distances_are_told_region_by_region():
    where = toy_hmc.regions(cubic().x[:, 0].numpy())
    zeros, ones = np.zeros(201), np.ones(201)
    shares = [where[region].mean() for region in ("gap", "beyond")]
    found = toy_hmc.distances(result("global", 3.0 * where["gap"], ones + where["beyond"]), result("hmc", zeros, ones))
    assert found == pytest.approx(
        {
            ("mean", "data"): 0, ("mean", "gap"): 3, ("mean", "beyond"): 0, ("mean", "all"): 3 * shares[0] ** 0.5,
            ("std", "data"): 0, ("std", "gap"): 0, ("std", "beyond"): 1, ("std", "all"): shares[1] ** 0.5,
        }
    )  # fmt: skip


def test_the_report_leaves_cells_empty_and_compares(tmp_path, capsys):
    curves = (np.zeros(201), np.ones(201))
    numbers = {"elbo_per_datapoint": -1.5, "log_likelihood": -1.0, "kl": 0.5, "layer_variance": [0.1, 0.2, 0.3]}
    diagnostics = {"r_hat": 1.004, "ess": 432.1, "acceptance": 0.81, "divergences": 0}
    results = [result("local", *curves, **numbers), result("hmc", *curves, log_likelihood=-0.25, **diagnostics)]
    toy_hmc.report(results, tmp_path / "toy.png", Console(width=200))
    printed = capsys.readouterr().out
    cells = [cell.strip() for line in printed.splitlines() if "hmc" in line for cell in line.split("│")[1:-1]]
    assert cells == ["hmc", "", "-0.25", "", "", "", ""]
    assert "R-hat at most 1.004, effective sample size at least 432, acceptance 0.81, 0 divergences" in " ".join(
        printed.split()
    )
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG")
    for alone in results:
        toy_hmc.report([alone], tmp_path / "toy.png", Console(width=200))
        assert "Distance" not in capsys.readouterr().out, "there is nothing to compare"


@pytest.mark.slow
def test_global_inducing_is_closer_to_hmc_than_factorised():
    """The paper's claim about Fig. 1, where there are no data."""
    settings = {"num_steps": 2000, "hmc_warmup": 500, "hmc_samples": 500, "hmc_thin": 5}
    results = {
        posterior: {"config": dataclasses.asdict(config), "metrics": toy_hmc.run(config, progress=False)}
        for posterior in ("factorised", "global", "hmc")
        for config in (toy_hmc.Config(posterior=posterior, **settings),)
    }
    assert results["hmc"]["metrics"]["r_hat"] < 1.1
    near, far = (toy_hmc.distances(results[posterior], results["hmc"]) for posterior in ("global", "factorised"))
    for region in ("gap", "beyond"):
        assert near["std", region] < far["std", region]
