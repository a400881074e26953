import json

import pytest

from inducing.experiments.uci_dgp import UCI_DGP, Config


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
