import json

import pytest
from rich.console import Console

from inducing.experiments import uci
from inducing.experiments.uci import UCI_DGP, Cell, Config, cells, markdown, run, theirs, verdict


def result(dataset, posterior, elbo, split=0, depth=2):
    config = {"dataset": dataset, "posterior": posterior, "split": split, "depth": depth, "num_steps": 10}
    return {"config": config, "metrics": {"elbo_per_datapoint": elbo, "test_log_likelihood": -2.4, "rmse": 2.8}}


def test_cells_are_means_and_standard_errors_over_splits():
    results = [result("boston", "global", elbo, split) for split, elbo in enumerate((-0.2, -0.3, -0.4))]
    found = cells(results, "elbo_per_datapoint")["boston", 2, "global"]
    assert found == pytest.approx(Cell(-0.3, 0.1 / 3**0.5, 3))
    assert cells(results[:1], "rmse") == {("boston", 2, "global"): Cell(2.8, 0.0, 1)}


def test_the_paper_has_three_of_the_four_posteriors():
    assert theirs(("boston", 2, "global"), "elbo_per_datapoint") == Cell(-0.28, 0.01, 20)
    assert theirs(("boston", 2, "coupled"), "elbo_per_datapoint") is None


@pytest.mark.parametrize(
    ("ours", "higher_is_better", "expected"),
    [
        (Cell(-0.2, 0.01, 3), True, "better"),
        (Cell(-0.32, 0.01, 3), True, "near"),
        (Cell(-0.5, 0.2, 3), True, "near"),
        (Cell(-0.5, 0.01, 3), True, "worse by 0.22"),
        (Cell(-0.5, 0.01, 3), False, "better"),
    ],
)
def test_verdicts(ours, higher_is_better, expected):
    assert verdict(ours, Cell(-0.28, 0.01, 20), higher_is_better) == expected


def test_the_page_and_the_figure(tmp_path):
    results = [result("boston", posterior, -0.3) for posterior in uci.POSTERIORS] + [result("yacht", "global", 2.2)]
    page = markdown(results)
    assert "| boston | 2 | global | 1 | -0.30 | -0.28 ± 0.01 | near |" in page
    assert page.count("\n| boston") == 4
    uci.report(results, tmp_path / "uci.png", Console(width=80))
    assert (tmp_path / "uci.md").read_text() == page
    assert (tmp_path / "uci.png").read_bytes().startswith(b"\x89PNG")


def test_only_splits_that_exist():
    configs = UCI_DGP.configs("paper")
    assert {config.split for config in configs if config.dataset == "protein"} == set(range(5))
    assert len(configs) == (8 * 20 + 5) * 4 * 4


@pytest.mark.parametrize("own_inducing", ["normal", "data"])
@pytest.mark.parametrize("posterior", ["local", "global"])
def test_a_run_is_a_function_of_its_configuration(uci_folder, posterior, own_inducing):
    config = Config("yacht", 1, posterior, num_inducing=8, own_inducing=own_inducing, num_steps=2, test_samples=3)
    first = run(config, progress=False)
    assert first == run(config, progress=False)
    assert json.loads(json.dumps(first)) == first
    assert first["max_jitter"] == 1e-6
