import pytest
from rich.console import Console

from inducing.experiments import uci_bnn, uci_dgp
from inducing.experiments.engine.comparison import ELBO, RMSE, TEST, Estimate
from inducing.experiments.engine.report import show


def result(dataset, posterior, elbo, split=0, **config):
    config = {"dataset": dataset, "posterior": posterior, "split": split, "num_steps": 10, **config}
    return {"config": config, "metrics": {"elbo_per_datapoint": elbo, "test_log_likelihood": -2.4, "rmse": 2.8}}


@pytest.mark.parametrize(
    ("table", "key", "measure", "expected"),
    [
        (uci_dgp.UCI_DGP.comparison, ("boston", 2, "global"), ELBO, Estimate(-0.28, 0.01, 20)),
        (uci_dgp.UCI_DGP.comparison, ("boston", 2, "coupled"), ELBO, None),
        (uci_dgp.UCI_DGP.comparison, ("wine", 2, "global"), RMSE, None),
        (uci_bnn.UCI_BNN.comparison, ("yacht", "neal", "global"), ELBO, Estimate(0.74, 0.01, 20)),
        (uci_bnn.UCI_BNN.comparison, ("boston", "scale", "factorised->global"), TEST, Estimate(-2.61, 0.04, 20)),
        (uci_bnn.UCI_BNN.comparison, ("energy", "standard", "local"), RMSE, Estimate(1.35, 0.02, 20)),
    ],
)
def test_the_published_figures(table, key, measure, expected):
    assert table.paper(key, measure) == expected


def test_the_paper_has_every_row_of_networks():
    comparison = uci_bnn.UCI_BNN.comparison
    keys = {(config.dataset, config.prior, config.posterior) for config in uci_bnn.UCI_BNN.configs("paper")}
    assert len(keys) == 9 * 3 * 4
    assert all(comparison.paper(key, measure) for key in keys for measure in comparison.measures)
    assert comparison.paper(("protein", "neal", "global"), ELBO).splits == 5


def test_the_page(tmp_path):
    results = [result("boston", posterior, -0.3, depth=2) for posterior in uci_dgp.UCI_DGP.grid["posterior"]]
    results.append(result("yacht", "global", 2.2, depth=3))
    show(uci_dgp.UCI_DGP, {"paper": results}, tmp_path / "uci.md", Console(width=80))
    page = (tmp_path / "uci.md").read_text()
    assert "| boston | 2 | global | 1 | -0.30 | -0.28 ± 0.01 | equal |" in page
    assert page.count("\n| boston") == 4
    assert (tmp_path / "uci.png").read_bytes().startswith(b"\x89PNG")


def test_the_figure_of_networks_has_a_place_for_each_prior():
    results = [result("yacht", "global", 0.7, prior=prior) for prior in ("neal", "scale")]
    results.append(result("boston", "factorised", -1.0, prior="neal"))
    figure = uci_bnn.UCI_BNN.figure(uci_bnn.UCI_BNN.sort(results))
    assert [axes.get_title() for axes in figure.axes[:2]] == ["boston", "yacht"]
    yacht = figure.axes[1]
    assert [label.get_text() for label in figure.axes[3].get_xticklabels()] == ["neal", "scale"]
    # ours filled, then the paper's
    ours, paper = (container.lines[0].get_ydata().tolist() for container in yacht.containers)
    assert ours == [0.7, 0.7]
    assert paper == [0.74, 0.79]
