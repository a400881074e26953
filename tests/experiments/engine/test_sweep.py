"""`inducing reproduce`: what is finished is never repeated, and nothing is lost."""

import json
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from inducing.cli import app
from inducing.errors import DivergenceError
from inducing.experiments.engine import sweep
from inducing.experiments.engine.registry import EXPERIMENTS
from inducing.experiments.engine.store import Store
from inducing.inference.parallel.ranks import Ranks
from tests import processes
from tests.experiments.engine.killed_sweep import reproduce


# the sampler takes a few steps only
@pytest.mark.filterwarnings("ignore::inducing.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke(name, tmp_path, capsys, request):
    """Every experiment's smoke preset: results in the store, a figure, its deviations told."""
    experiment = EXPERIMENTS[name]
    # small data sets, made here
    if name.startswith("uci"):
        request.getfixturevalue("uci_folder")
    elif name.startswith(("mnist", "fashion", "cifar", "epoch")):
        request.getfixturevalue("small_images")
    results = sweep.reproduce(experiment, "smoke", tmp_path, console=Console(width=200))
    assert len(results) == len(experiment.configs("smoke")) == len(Store(tmp_path / f"{name}.jsonl").results())
    for result in results:
        # a sampler has no bound
        has_elbo = result["config"].get("posterior") not in ("hmc", "plain") and name != "epoch-times"
        assert ("elbo_per_datapoint" in result["metrics"]) == has_elbo
    assert (tmp_path / f"{name}-smoke.png").read_bytes().startswith(b"\x89PNG")
    assert f"]({name}-smoke.png)" in (tmp_path / f"{name}-smoke.md").read_text()
    assert not any(path.is_dir() for path in (tmp_path / "checkpoints").iterdir()), "finished runs have no checkpoints"
    printed = capsys.readouterr().out
    assert "preset smoke: " in printed
    assert "num_steps" in printed


def counting(experiment, called):
    """The experiment with a list of the configurations that it has run."""

    def run(config, checkpoint, progress):
        called.append(config)
        return experiment.run(config, checkpoint, progress)

    return replace(experiment, run=run)


def test_finished_runs_are_not_repeated(tmp_path):
    called = []
    experiment = counting(EXPERIMENTS["linear"], called)
    first = sweep.reproduce(experiment, "smoke", tmp_path, only={"depth": 1, "posterior": "global"})
    assert len(first) == 1
    called.clear()
    sweep.reproduce(experiment, "smoke", tmp_path, only={"depth": 1})
    assert [config.posterior for config in called] == ["factorised", "local", "factorised->global", "prior->global"]
    called.clear()
    sweep.reproduce(experiment, "smoke", tmp_path, only={"posterior": "global", "depth": 1}, resume=False)
    assert len(called) == 1, "--no-resume does it again"


def test_two_jobs_give_what_one_gives(tmp_path):
    experiment, only = EXPERIMENTS["linear"], {"depth": 2}
    one = sweep.reproduce(experiment, "smoke", tmp_path / "one", only=only)
    two = sweep.reproduce(experiment, "smoke", tmp_path / "two", jobs=2, only=only)
    assert [result["metrics"] for result in one] == [result["metrics"] for result in two]


@pytest.mark.parametrize("elsewhere", [{"jobs": 2}, {"dask": "tcp://127.0.0.1:1"}])
def test_torchrun_does_runs_together_and_not_beside_each_other(tmp_path, monkeypatch, elsewhere):
    monkeypatch.setattr(sweep, "join", lambda: Ranks(0, 2))
    with pytest.raises(ValueError, match="torchrun"):
        sweep.reproduce(EXPERIMENTS["linear"], "smoke", tmp_path, **elsewhere)


@pytest.mark.parametrize("text", ["depth", "colour=red", "=3", "depth=1,depth=2"])
def test_bad_filters_are_explained(text):
    with pytest.raises(ValueError, match="keys of linear: dataset, posterior"):
        sweep.parse_only(text, EXPERIMENTS["linear"])


def test_filters():
    assert sweep.parse_only("depth=2,posterior=prior->global", EXPERIMENTS["linear"]) == {
        "depth": 2,
        "posterior": "prior->global",
    }
    with pytest.raises(ValueError, match="width 5; depth 1, 2; posterior factorised"):
        sweep.reproduce(EXPERIMENTS["linear"], "smoke", Path("unused"), only={"depth": 77})


def test_settings_are_chosen_by_the_elbo_of_trials(tmp_path, capsys):
    """The trials on split 0 run first, the better rate is taken for all splits, and none of them is done twice."""
    original = EXPERIMENTS["linear"]

    def trials(config):
        return [replace(config, split=0, num_steps=steps) for steps in (1, 30)] if config.num_steps == 0 else []

    experiment = replace(
        original,
        grid={"split": (0, 1), "posterior": ("factorised",)},
        presets={"smoke": {"num_steps": 0, "width": 5}},
        trials=trials,
    )
    results = sweep.reproduce(experiment, "smoke", tmp_path, only={"split": 1})
    assert [(result["config"]["split"], result["config"]["num_steps"]) for result in results] == [(1, 30)]
    assert "2 runs on split 0 to choose settings by the ELBO" in capsys.readouterr().out
    stored = Store(tmp_path / "linear.jsonl").results()
    assert sorted((r["config"]["split"], r["config"]["num_steps"]) for r in stored.values()) == [
        (0, 1),
        (0, 30),
        (1, 30),
    ]
    both = sweep.reproduce(experiment, "smoke", tmp_path)
    assert "2 runs, 2 finished before" in capsys.readouterr().out
    assert [result["config"]["split"] for result in both] == [0, 1]
    assert Store(tmp_path / "linear.jsonl").results() == stored
    again = sweep.reproduce(experiment, "smoke", tmp_path, resume=False)
    assert "[3/3]" not in capsys.readouterr().out, "two trials, and then one more"
    assert [result["metrics"] for result in again] == [result["metrics"] for result in both]


def test_runs_wait_for_trials_that_fail(tmp_path):
    original = EXPERIMENTS["linear"]

    def run(config, checkpoint, progress):
        raise DivergenceError("step 3")

    experiment = replace(
        original,
        run=run,
        grid={"split": (0, 1)},
        presets={"smoke": {"num_steps": 0}},
        trials=lambda config: [replace(config, split=0, num_steps=1)] if config.num_steps == 0 else [],
    )
    with pytest.raises(DivergenceError, match="2 runs wait for their trials: split=0: step 3"):
        sweep.reproduce(experiment, "smoke", tmp_path)


def test_two_commands_at_once_do_each_run_once(tmp_path):
    both = [processes.start(reproduce, tmp_path) for _ in range(2)]
    assert [processes.wait(process) for process in both] == [0, 0]
    lines = (tmp_path / "linear.jsonl").read_text().splitlines()
    assert len(lines) == 10


def test_workers_do_not_outlive_a_killed_sweep(tmp_path):
    options = ("--jobs", "2", "--only", "depth=2")
    process = processes.start(reproduce, tmp_path, *options)
    while process.is_alive() and not Store(tmp_path / "linear.jsonl").results():
        time.sleep(0.01)
    process.kill()
    assert processes.wait(process) == -signal.SIGKILL
    kept = Store(tmp_path / "linear.jsonl").results()
    assert processes.wait(processes.start(reproduce, tmp_path, *options)) == 0
    results = Store(tmp_path / "linear.jsonl").results()
    assert len(results) == 5
    assert kept.items() <= results.items(), "finished runs stay as they are"


def test_a_run_that_diverges_does_not_keep_the_others_from_finishing(tmp_path):
    experiment = EXPERIMENTS["linear"]

    def run(config, checkpoint, progress):
        if config.posterior == "local":
            raise DivergenceError("step 3: the KL is not finite")
        return experiment.run(config, checkpoint, progress)

    with pytest.raises(DivergenceError, match="posterior=local: step 3"):
        sweep.reproduce(replace(experiment, run=run), "smoke", tmp_path)
    assert len(Store(tmp_path / "linear.jsonl").results()) == 8


def test_killed_at_random_moments(tmp_path):
    """kill -9 while the sweep runs: the store is intact after each, in the end complete, and nothing was done twice."""
    random.seed(1)
    path = tmp_path / "linear.jsonl"
    seen = {}
    for _ in range(4):
        process = processes.start(reproduce, tmp_path)
        while process.is_alive() and len(Store(path).results()) <= len(seen):
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.05))
        process.kill()
        processes.wait(process)
        now = Store(path).results()
        assert seen.items() <= now.items(), "finished runs stay as they are"
        seen = now
    assert processes.wait(processes.start(reproduce, tmp_path)) == 0
    results = Store(path).results()
    assert seen.items() <= results.items()
    assert len(results) == 10
    assert len(path.read_text().splitlines()) == 10
    whole = sweep.reproduce(EXPERIMENTS["linear"], "smoke", tmp_path / "whole")
    assert {r["key"]: r["metrics"] for r in whole} == {key: result["metrics"] for key, result in results.items()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "toy, toy-num-inducing, compositional-bnn, compositional-dgp, linear, uci-bnn, uci-dgp"),
        (["toy", "--preset", "gpu"], "unknown preset 'gpu'"),
        (["toy", "--only", "colour=red"], "--only takes key=value"),
    ],
)
def test_bad_usage_is_one_line(arguments, message, tmp_path):
    done = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr.startswith("inducing reproduce: ")
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_results_say_where_they_come_from(tmp_path):
    sweep.reproduce(EXPERIMENTS["linear"], "smoke", tmp_path, only={"depth": 1, "posterior": "global"})
    result = json.loads((tmp_path / "linear.jsonl").read_text())
    assert result["version"] == "0.1.0"
    assert result["config"]["split"] == 0
    assert result["seconds"] > 0
