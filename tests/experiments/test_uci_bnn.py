import itertools
import json
from dataclasses import asdict, replace

import pytest

from inducing.experiments import uci_bnn
from inducing.experiments.engine.store import REVISION, config_key
from inducing.experiments.uci_bnn import UCI_BNN, Config, trials
from inducing.nn.posteriors import Factorised, GlobalInducing, LocalInducing


def test_the_grid_of_the_paper():
    configs = UCI_BNN.configs("paper")
    assert len(configs) == (8 * 20 + 5) * 3 * 4
    assert {config.num_inducing for config in configs} == {10_000}


def test_the_cpu_preset():
    configs = UCI_BNN.configs("cpu")
    rows = {(config.dataset, config.prior, config.posterior) for config in configs}
    small, large = {"boston", "energy", "yacht", "concrete", "wine"}, {"kin8nm", "power", "naval", "protein"}
    on_small = set(itertools.product(small, UCI_BNN.grid["prior"], UCI_BNN.grid["posterior"]))
    on_large = set(itertools.product(large, ["neal"], ["factorised", "global"]))
    assert rows == on_small | on_large
    assert len(configs) == 5 * len(on_small) + len(on_large), "five splits of the small datasets, one of the large ones"
    assert not any(trials(config) for config in configs), "its rates are fixed"


def test_trials_are_the_grid_of_the_paper_on_split_0():
    found = trials(Config(dataset="yacht", split=7))
    assert found == [
        Config(dataset="yacht", num_steps=10_000, batch_size=10_000, learning_rate=rate) for rate in (3e-3, 1e-2)
    ]
    found = trials(Config(dataset="yacht", split=7, posterior="factorised"))
    assert len(found) == 12
    assert {(trial.num_steps, trial.split) for trial in found} == {(25_000, 0)}
    assert not any(trials(trial) for trial in found)


def test_what_is_set_is_kept_and_tried_once():
    found = trials(Config(posterior="factorised", num_steps=50, learning_rate=1e-2))
    assert [(trial.num_steps, trial.batch_size, trial.learning_rate) for trial in found] == [
        (50, size, 1e-2) for size in (32, 100, 500)
    ]


def test_the_elbo_decides_whatever_the_test_figures():
    config = Config(dataset="yacht", split=7)
    low, high = trials(config)

    def result(config, elbo, test):
        metrics = {"elbo_per_datapoint": elbo, "test_log_likelihood": test}
        return {"config": asdict(config), "metrics": metrics, "revision": REVISION}

    results = {config_key(asdict(low)): result(low, 0.5, 9.0)}
    assert UCI_BNN.settle(config, results).config is None, "not all trials are finished"
    results[config_key(asdict(high))] = result(high, 0.6, -9.0)
    assert UCI_BNN.settle(config, results).config == replace(high, split=7)
    assert UCI_BNN.settle(replace(config, split=0), results).config == high, "split 0 has been run by its trial"


def test_posteriors_have_a_precision_for_each_output():
    below, _, last = uci_bnn._posteriors(Config(posterior="factorised->global"))
    assert (below, last) == (Factorised(), GlobalInducing("per_output"))
    assert uci_bnn._posteriors(Config(posterior="local")) == [LocalInducing(precision="per_output")] * 3
    assert uci_bnn._posteriors(Config(posterior="factorised")) == [Factorised(local_reparameterisation=True)] * 3


@pytest.mark.parametrize("posterior", UCI_BNN.grid["posterior"])
def test_a_run_is_a_function_of_its_configuration(uci_folder, posterior):
    config = Config(
        dataset="yacht",
        split=1,
        posterior=posterior,
        prior="scale",
        num_inducing=8,
        num_steps=2,
        batch_size=30,
        learning_rate=1e-2,
        test_samples=3,
    )
    first = UCI_BNN.run(config, progress=False)
    assert first == UCI_BNN.run(config, progress=False)
    assert json.loads(json.dumps(first)) == first
    assert {"elbo_per_datapoint", "test_log_likelihood", "rmse"} <= set(first)
