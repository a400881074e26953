"""Runs that are killed or stopped by a signal."""

import os
import random
import re
import signal
import time

import pytest
import torch

from tests import processes
from tests.inference.checkpointed import fit
from tests.inference.killed_training import train


def wait_for_checkpoint(folder, is_running):
    while not list(folder.glob("step-*")) and is_running():
        time.sleep(0.01)


def test_killed_ten_times_at_random_moments(tmp_path):
    """kill -9, ten times, anywhere: parameters, history and log are those of an uninterrupted run, bit by bit."""
    num_steps = 150
    assert processes.wait(processes.start(train, tmp_path / "whole", num_steps)) == 0
    random.seed(0)
    kills = 0
    while kills < 10:
        process = processes.start(train, tmp_path / "killed", num_steps)
        wait_for_checkpoint(tmp_path / "killed", process.is_alive)
        time.sleep(random.uniform(0.0, 0.15))
        process.kill()
        if processes.wait(process) == 0:
            break
        kills += 1
    assert processes.wait(processes.start(train, tmp_path / "killed", num_steps)) == 0
    assert kills >= 5
    (parameters, history), (expected_parameters, expected_history) = (
        torch.load(tmp_path / name) for name in ("killed.pt", "whole.pt")
    )
    assert all(torch.equal(p, q) for p, q in zip(parameters, expected_parameters, strict=True))
    assert history == expected_history
    steps = [
        int(line.split('"step": ')[1].split(",")[0]) for line in (tmp_path / "killed.jsonl").read_text().splitlines()
    ]
    assert steps == list(range(1, num_steps + 1))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 1), (signal.SIGINT, None)])
def test_signals_checkpoint_and_leave_with_a_message(tmp_path, number, code):
    folder = tmp_path / "run"
    process = processes.start(train, folder, 100_000, errors=tmp_path / "errors")
    wait_for_checkpoint(folder, process.is_alive)
    os.kill(process.pid, number)
    assert processes.wait(process, 60) not in (None, 0, -signal.SIGKILL)
    shown = (tmp_path / "errors").read_text()
    assert "stopped after step" in shown
    assert f"the same command continues from {folder}" in shown
    newest = sorted(folder.glob("step-*"))[-1]
    assert int(newest.stem.removeprefix("step-")) == int(re.findall(r"stopped after step (\d+)", shown)[-1])


def test_signals_are_left_alone_without_checkpoints():
    before = signal.getsignal(signal.SIGTERM)
    seen = []
    fit(None, callbacks=[lambda record: seen.append(signal.getsignal(signal.SIGTERM))])
    assert set(seen) == {before}
