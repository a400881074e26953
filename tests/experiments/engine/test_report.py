"""`inducing report` on a folder of made-up results."""

from dataclasses import asdict, replace

import pytest
from rich.console import Console

from inducing.experiments.engine.registry import EXPERIMENTS
from inducing.experiments.engine.report import report, selected, show
from inducing.experiments.engine.store import REVISION, Store, config_key, finished_run

UCI = {"elbo_per_datapoint": 0.73, "test_log_likelihood": -1.0, "rmse": 0.5}


def add(folder, name, preset="cpu", metrics=UCI, **wanted):
    """Runs of all configurations of a preset that have the wanted values, and of twice the steps if that is wanted."""
    for config in EXPERIMENTS[name].configs(preset):
        if all(getattr(config, key) == value for key, value in wanted.items()):
            for times in (1, 2) if config.doublings else (1,):
                run = replace(config, num_steps=times * config.num_steps, doublings=None)
                Store(folder / f"{name}.jsonl").add(finished_run(asdict(run), metrics, 1.0))


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    add(folder, "uci-bnn", dataset="yacht", prior="neal")
    for depth in (2, 5):
        add(folder, "uci-dgp", dataset="yacht", depth=depth, posterior="global")
    images = {
        "elbo_per_datapoint": -0.7,
        "test_log_likelihood": -0.3,
        "accuracy": 86.0,
        "ece": 0.02,
        "entropy_ratio": 0.3,
        "auroc": 0.8,
        "calibration": [[0.5, 0.4, 20]],
    }
    add(folder, "cifar10", metrics=images, prior="spatial-iw", posterior="global")
    add(folder, "cifar10", metrics=images, preset="smoke", posterior="local")
    toy = {"elbo_per_datapoint": -1.7, "log_likelihood": -1.0, "kl": 0.7, "layer_variance": [0.4, 0.5, 1.0]}
    add(folder, "compositional-bnn", metrics=toy, split=0)
    add(folder, "mnist500", metrics=images, preset="smoke", posterior="local")
    return folder


def test_markdown(results, tmp_path):
    report(results, tmp_path / "docs" / "results.md")
    page = (tmp_path / "docs" / "results.md").read_text()
    for line in (
        "Of the paper's 696 numbers, 35 have one of ours beside them, 35 of them from runs that count",
        "| uci-bnn | 20 | 324 | 12 | 12 | 3 better, 1 equal | 1 equal |",
        "| uci-dgp | 6 | 312 | 6 | 6 | 2 worse | 2 worse |",
        "| cifar10 | 1 | 40 | 5 | 5 | 1 equal | 1 equal |",
        "| toy | missing | 12 | 0 | 0 |  |  |",
        "| yacht | neal | global | 5 | 4000 | converged | 0.73 ± 0.00 | 0.74 ± 0.01 | equal |",
        "| yacht | 2 | global | 3 | 3000 | converged | 0.73 ± 0.00 | 2.12 ± 0.05 | worse by 1.39 |",
        "| spatial-iw | global | 1 | -0.70 | -0.68 | equal | -0.30 | -0.40 | better by 0.10 | 86.0 | 86.7 | equal |",
        "| global | 1 | -1.70 | -2.24 | better by 0.54 | -1.00 | 0.70 | 0.40 | 0.48 | differs by 0.08 | 0.50 | 0.49 | differs by 0.01 | ",
        "4 of the 108 rows of the paper's table have runs.",
        "1 of the 8 rows of the paper's table have runs.",
        "No runs are stored: `inducing reproduce linear` makes them.",
        "stored runs has the settings of the preset paper or cpu: `inducing reproduce mnist500` makes them.",
        "3 runs of preset paper, with the paper's settings.",
    ):
        assert line in page.splitlines() or line in page, line
    for name in ("uci-bnn", "uci-dgp", "cifar10", "compositional-bnn", "differences"):
        assert f"](../results/{name}.png)" in page
        assert (results / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "num_steps" in page.split("## cifar10\n")[1], "the differences of the preset from the paper"
    claims = (tmp_path / "docs" / "claims.md").read_text()
    assert (
        "| factorised->global, too, has a better ELBO than factorised and local in almost every case. | UCI, networks | `uci-bnn` | undecided |"
        in claims
    )


def test_html_leaves_the_results_alone(results, tmp_path):
    before = sorted(path.name for path in results.iterdir())
    report(results, tmp_path / "report.html")
    assert sorted(path.name for path in results.iterdir()) == before
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 5
    assert page.count("<h2>") == 1 + len(EXPERIMENTS)
    assert str(tmp_path) not in page


def test_runs_with_the_papers_settings_come_before_others():
    """For each row, whatever the figures; smoke runs are never shown."""
    experiment = EXPERIMENTS["uci-dgp"]
    store = {}

    def put(preset, elbo, **wanted):
        for config in experiment.configs(preset):
            if all(getattr(config, key) == value for key, value in wanted.items()):
                run = asdict(replace(config, doublings=None))
                metrics = {**UCI, "elbo_per_datapoint": elbo}
                store[config_key(run)] = {
                    "key": config_key(run),
                    "config": run,
                    "metrics": metrics,
                    "revision": REVISION,
                }

    put("smoke", 9.0)
    assert selected(experiment, store) == {}
    for depth in (2, 5):
        put("cpu", 5.0, dataset="yacht", depth=depth)
    put("paper", 1.0, dataset="yacht", depth=2, posterior="global", split=0)
    found = selected(experiment, store)
    assert {preset: len(runs) for preset, runs in found.items()} == {"cpu": 15, "paper": 1}
    assert {(run["config"]["depth"], run["config"]["posterior"]) for run in found["cpu"]} == {
        (2, "dsvi"),
        (2, "local"),
        *((5, posterior) for posterior in ("dsvi", "local", "global")),
    }
    assert experiment.comparison.verdicts(found["paper"]) == {("yacht", 2, "global"): "worse"}


def test_open_settings_are_shown_once_their_trials_are_finished():
    experiment = EXPERIMENTS["uci-bnn"]
    config = next(
        each for each in experiment.configs("paper") if each.dataset == "yacht" and each.posterior == "global"
    )
    store = {}
    for elbo, trial in enumerate(experiment.trials(config)):
        assert selected(experiment, store) == {}
        metrics = {**UCI, "elbo_per_datapoint": float(elbo)}
        result = {"config": asdict(trial), "metrics": metrics, "revision": REVISION}
        store[config_key(asdict(trial))] = result
    (run,) = selected(experiment, store)["paper"]
    assert run["config"] == asdict(replace(experiment.trials(config)[-1], split=0))


@pytest.mark.parametrize(
    ("folder", "out", "message"),
    [
        ("results", "report.pdf", r"\.html or \.md"),
        ("results", "claims.md", "claims"),
        ("nowhere", "report.html", "no runs in .*nowhere"),
        (".", "report.html", "no runs in"),
    ],
)
def test_bad_usage(results, tmp_path, folder, out, message):
    with pytest.raises(ValueError, match=message):
        report(tmp_path / folder, tmp_path / out)


def test_the_page_of_a_variant_alone(tmp_path):
    experiment = EXPERIMENTS["uci-dgp"]
    add(tmp_path, "uci-dgp", preset="cpu-per-output", dataset="yacht")
    runs = selected(experiment, Store(tmp_path / "uci-dgp.jsonl").results())
    assert {preset: len(found) for preset, found in runs.items()} == {"cpu-per-output": 3}
    show(experiment, runs, tmp_path / "page.md", Console(width=200))
    page = (tmp_path / "page.md").read_text()
    assert page.count("| yacht | 2 | global | 3 | 3000 | converged |") == 1
    report(tmp_path, tmp_path / "all.md")
    assert "full_per_output" in (tmp_path / "all.md").read_text()
