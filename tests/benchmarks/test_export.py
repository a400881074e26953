"""The benchmark of exported functions."""

import torch

import inducing
from benchmarks import export


def test_a_case_is_measured(monkeypatch):
    monkeypatch.setattr(export, "SECONDS", 0)
    # without a compiler
    monkeypatch.setattr(torch, "compile", lambda functions, fullgraph: functions)
    functions = inducing.models.mlp(2, 1, [3], num_inducing=4).sample_functions(2)
    found = export.measure(functions, torch.randn(5, 2))
    assert len(found) == 4
    assert all(each >= 0 for each in found)
