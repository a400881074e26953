"""Simulation-based calibration runs for all methods, is stored with its version, and its page and figure are complete."""

import pytest
import torch

from benchmarks import calibration, calibration_page
from inducing.experiments.engine.store import Store


@pytest.mark.filterwarnings("ignore:the chains have not converged")
def test_two_simulations_with_each_method(monkeypatch, tmp_path):
    monkeypatch.setattr(calibration, "STORE", Store(tmp_path / "calibration.jsonl"))
    for name, value in {"num_warmup": 5, "num_samples": 12, "thin": 1}.items():
        monkeypatch.setitem(calibration.HMC, name, value)
    monkeypatch.setattr(calibration, "MAX_DOUBLINGS", 0)
    methods = {
        "gp": calibration.METHODS["gp"],
        "hmc": calibration.METHODS["hmc"],
        "prior": calibration.METHODS["prior"],
        "global": calibration.trained("network", calibration.fit_network, "global", 2, 0.1),
        "deep gp, global": calibration.trained("deep gp", calibration.fit_processes, "global", 2, 0.1),
    }
    monkeypatch.setattr(calibration, "METHODS", methods)
    for name in methods:
        for number in range(2):
            calibration.run(name, number)
    calibration.run("global", 0, factor=2)
    stored = list(calibration.STORE.results().values())
    assert len(stored) == 11
    assert all(0 <= rank <= 99 for run in stored for rank in run["metrics"]["ranks"])
    assert all(run["version"] and "commit" in run for run in stored)
    calibration_page.write(stored, tmp_path / "calibration.md")
    text = (tmp_path / "calibration.md").read_text()
    assert (tmp_path / "calibration.png").exists()
    assert all(f"| {calibration_page.LABELS.get(name, name)} | 2 |" in text for name in methods)
    assert "In 1 simulations with twice the steps" in text


def test_data_and_truth_are_one_joint_draw():
    for model in ("network", "gp", "deep gp"):
        first, again, other = (calibration.simulate(model, number) for number in (0, 0, 1))
        assert torch.equal(first.targets, again.targets)
        assert not torch.equal(first.targets, other.targets)
        noise = first.targets - first.truth[: len(calibration.INPUTS)]
        assert 0 < noise.std() < 3 * calibration.NOISE**0.5


def test_the_rank_is_the_number_of_draws_below_the_truth():
    simulation = calibration.simulate("network", 0)
    draws = simulation.truth + torch.linspace(-1, 2, calibration.DRAWS)[:, None, None]
    assert calibration.measure(simulation, draws)["ranks"][:3] == [33, 33, 33]
