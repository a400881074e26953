import json
from dataclasses import replace

import pytest
import torch

from inducing.experiments.uci_dgp import UCI_DGP, Config
from inducing.experiments.uci_dgp import _network as build


def test_only_splits_that_exist():
    configs = UCI_DGP.configs("paper")
    assert {config.split for config in configs if config.dataset == "protein"} == set(range(5))
    assert len(configs) == (8 * 20 + 5) * 4 * 4


@pytest.mark.parametrize("own_inducing", ["normal", "data"])
@pytest.mark.parametrize("posterior", ["local", "global"])
def test_a_run_is_a_function_of_its_configuration(uci_folder, posterior, own_inducing):
    config = Config(
        dataset="yacht",
        split=1,
        posterior=posterior,
        num_inducing=8,
        own_inducing=own_inducing,
        num_steps=2,
        test_samples=3,
    )
    first = UCI_DGP.run(config, progress=False)
    assert first == UCI_DGP.run(config, progress=False)
    assert json.loads(json.dumps(first)) == first
    assert first["max_jitter"] == 1e-6


def test_the_papers_family_has_one_precision_matrix_for_a_layer_and_starts_at_normal_values():
    x, y = torch.randn(12, 3), torch.randn(12, 1)
    paper = UCI_DGP.paper
    hidden, last = (layer.posterior for layer in build(replace(paper, num_inducing=8), x, y).layers)
    assert hidden.precision_lower.shape == last.precision_lower.shape == (1, 8, 8)
    assert (hidden.pseudo_outputs - x[:8]).abs().max() > 0.1
    assert torch.equal(last.pseudo_outputs, y[:8])
    ours = replace(paper, num_inducing=8, precision="full_per_output", hidden_outputs="mean")
    hidden, _ = (layer.posterior for layer in build(ours, x, y).layers)
    assert hidden.precision_lower.shape == (3, 8, 8)
    torch.testing.assert_close(hidden.pseudo_outputs.data, x[:8])
