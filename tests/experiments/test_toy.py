import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

import inducing
from inducing.data.toy import cubic
from inducing.experiments import toy
from inducing.linalg.noise import seeded

QUICK = toy.Config(num_steps=20, train_samples=2, test_samples=10, num_inducing=10)
QUICK_HMC = toy.HMCConfig(
    posterior="hmc", width=5, hmc_chains=2, hmc_warmup=30, hmc_samples=40, hmc_thin=2, hmc_leapfrog=5
)


def result(posterior, mean, std, split=0, **metrics):
    config = asdict(toy.HMCConfig(posterior=posterior, split=split))
    return {"config": config, "metrics": {"mean": list(mean), "std": list(std), **metrics}}


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


@pytest.mark.filterwarnings("ignore::inducing.errors.ConvergenceWarning")
def test_a_run_of_hmc_has_curves_and_diagnostics_but_no_bound():
    before = torch.get_rng_state()
    metrics = toy.run_with_hmc(QUICK_HMC, progress=False)
    assert metrics == toy.run_with_hmc(QUICK_HMC, progress=False), "the split is the seed"
    assert metrics != toy.run_with_hmc(replace(QUICK_HMC, split=1), progress=False)
    assert torch.equal(before, torch.get_rng_state())
    assert set(metrics) == {
        "log_likelihood", "mean", "std", "r_hat", "ess", "acceptance", "divergences", "step_size",
    }  # fmt: skip
    assert len(metrics["mean"]) == len(metrics["std"]) == len(toy.GRID)
    assert min(metrics["std"]) > 0.99 * cubic().noise_variance ** 0.5, "the noise is part of it"


def test_the_regions_are_where_the_data_are_and_are_not():
    where = toy.regions(np.array([1.0, -1.5, -0.5, 0.4, -0.9]))
    parts = (rows.astype(int) for region, rows in where.items() if region != "all")
    assert sum(parts).tolist() == [1] * 201, "each input is in one of them"
    assert where["all"].all()
    for region, inside, outside in (("data", -1.0, 0.0), ("data", 0.7, 1.2), ("gap", 0.0, 0.7), ("beyond", -1.7, 0.0)):
        assert where[region][np.abs(toy.GRID - inside).argmin()]
        assert not where[region][np.abs(toy.GRID - outside).argmin()]


def test_distances_are_told_region_by_region():
    where = toy.regions(cubic().x[:, 0].numpy())
    zeros, ones = np.zeros(201), np.ones(201)
    shares = [where[region].mean() for region in ("gap", "beyond")]
    found = toy.distances(result("global", 3.0 * where["gap"], ones + where["beyond"]), result("hmc", zeros, ones))
    assert found == pytest.approx(
        {
            "mean data": 0, "mean gap": 3, "mean beyond": 0, "mean all": 3 * shares[0] ** 0.5,
            "std data": 0, "std gap": 0, "std beyond": 1, "std all": shares[1] ** 0.5,
        }
    )  # fmt: skip


def test_the_tables_leave_cells_empty_and_compare():
    curves = (np.zeros(201), np.ones(201))
    numbers = {"elbo_per_datapoint": -1.5, "log_likelihood": -1.0, "kl": 0.5, "layer_variance": [0.1, 0.2, 0.3]}
    diagnostics = {"r_hat": 1.004, "ess": 432.1, "acceptance": 0.81, "divergences": 0}
    results = [result("local", *curves, **numbers), result("hmc", *curves, log_likelihood=-0.25, **diagnostics)]
    assert list(toy.COMPARISON.table(results, brief=True).rows[1]) == ["hmc", "", "-0.25", "", "", "", ""]
    (distance,) = toy.tables(results)
    assert [row[0] for row in distance.rows] == ["local"]
    assert "R-hat at most 1.004, effective sample size at least 432, acceptance at least 0.81, 0 div" in distance.note
    assert len(toy.draw_predictions(results).axes) == 2
    for alone in results:
        assert toy.tables([alone]) == [], "there is nothing to compare"


def test_distances_are_means_over_the_splits_that_all_have():
    zeros, ones = np.zeros(201), np.ones(201)
    results = [result("global", value * ones, ones, split) for split, value in enumerate((1.0, 3.0, 100.0, 100.0))]
    results += [result("local", 5 * ones, ones, split) for split in (1, 0, 3)]
    results += [result("hmc", zeros, ones, split) for split in (2, 1, 0)]
    found = toy.distances_from_hmc(results)
    assert {name: each["mean all"] for name, each in found.items()} == pytest.approx({"global": 2.0, "local": 5.0})
    assert len(toy.draw_predictions(results).axes) == 3, "one split"
    assert toy.distances_from_hmc([results[0], results[-2]]) == {}, "no split has both"
    apart = [*results, result("prior->global", ones, ones, 7)]
    assert toy.distances_from_hmc(apart) == found, "it has no split in common with HMC"


@pytest.mark.slow
def test_global_inducing_is_closer_to_hmc_than_factorised():
    """The paper's claim about Fig. 1, where there are no data."""
    settings = {"num_steps": 2000, "hmc_warmup": 500, "hmc_samples": 500, "hmc_thin": 5}
    results = {
        posterior: {"config": asdict(config), "metrics": toy.run_with_hmc(config, progress=False)}
        for posterior in ("factorised", "global", "hmc")
        for config in (toy.HMCConfig(posterior=posterior, **settings),)
    }
    assert results["hmc"]["metrics"]["r_hat"] < 1.1
    near, far = (toy.distances(results[posterior], results["hmc"]) for posterior in ("global", "factorised"))
    for region in ("gap", "beyond"):
        assert near[f"std {region}"] < far[f"std {region}"]
