"""The benchmark of Bayesian optimisation runs, keeps finished runs, and its table and figure have all models."""

import json

import pytest
import torch

pytest.importorskip("botorch")

from benchmarks import bayesian_optimisation as benchmark


def short(monkeypatch, tmp_path):
    """Two evaluations of one function, with small budgets."""
    problem = benchmark.Problem(benchmark.step, 2, 1.0, 4, 6)
    changes = {"PROBLEMS": {"step": problem}, "SEEDS": range(1), "SAMPLES": 4, "RAW_SAMPLES": 4, "ITERATIONS": 2}
    changes |= {"RESULTS": tmp_path / "runs.jsonl", "PAGE": tmp_path / "page.md", "FIGURE": tmp_path / "figure.png"}
    for name, value in changes.items():
        monkeypatch.setattr(benchmark, name, value)
    monkeypatch.setattr(benchmark.Inducing, "first_steps", 2)
    monkeypatch.setattr(benchmark.Inducing, "steps", 2)


def test_finished_runs_are_kept(monkeypatch, tmp_path):
    short(monkeypatch, tmp_path)
    monkeypatch.setattr("sys.argv", ["bayesian_optimisation"])
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    benchmark.main()
    lines = benchmark.RESULTS.read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    assert [run["model"] for run in runs] == list(benchmark.MODELS)
    assert all(len(run["values"]) == 6 for run in runs)
    # the same Sobol points for all models
    assert len({tuple(run["values"][:4]) for run in runs}) == 1
    rows = benchmark.PAGE.read_text().splitlines()[-3:]
    assert [row.split(" | ")[2] for row in rows] == list(benchmark.MODELS)
    assert benchmark.FIGURE.exists()
    benchmark.main()
    assert benchmark.RESULTS.read_text().splitlines() == lines


def test_the_step_function():
    best = torch.tensor([0.6, 0.9], dtype=torch.float64)
    assert benchmark.step(best) == benchmark.PROBLEMS["step"].best
    below, above = benchmark.step(torch.tensor([[0.54, 0.9], [0.56, 0.9]]).double())
    assert above - below > 2.9
    # the lower terrace rises away from the jump
    assert benchmark.step(torch.zeros(2).double()) > below


def test_a_larger_network_starts_at_the_parameters_of_the_last_fit():
    x = torch.rand(6, 2, generator=torch.Generator().manual_seed(0)).double()
    old, new = (benchmark.DeepGP(0).build(x[:count], x[:count, :1]) for count in (4, 6))
    with torch.no_grad():
        for parameter in old.parameters():
            parameter.add_(0.1)
    benchmark.copy_parameters(old, new)
    outputs = "layers.0.posterior.pseudo_outputs"
    torch.testing.assert_close(new.get_parameter(outputs)[:4], old.get_parameter(outputs))
    torch.testing.assert_close(new.layers[1].kernel["lengthscale"], old.layers[1].kernel["lengthscale"])
