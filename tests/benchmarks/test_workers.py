"""Workers print one line of JSON last, in the process that they are started in."""

import json
import sys

import pytest
import torch

from benchmarks import compare, growth, profiles, thread_tasks


@pytest.fixture
def run(monkeypatch, capsys):
    def run(worker, *arguments):
        monkeypatch.setattr(sys, "argv", ["worker", *arguments])
        worker.main()
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


def test_a_comparison_prints_the_runs_of_all_sides(run):
    found = run(compare, "toy", "--seconds=0", "--least=2", f"--threads={torch.get_num_threads()}")
    assert [len(found[side]["wall"]) for side in ("ours", "other", "product")] == [2, 2, 2]


def test_a_comparison_with_another_number_of_threads_is_an_error(run):
    with pytest.raises(RuntimeError, match="threads instead of 99"):
        run(compare, "toy", "--seconds=0", "--least=1", "--threads=99")


def test_a_task_prints_its_runs_and_its_threads(run):
    found = run(thread_tasks, "predict", "--runs=2", "--quick")
    assert len(found["wall"]) == len(found["cpu"]) == 2
    assert found["threads"] == torch.get_num_threads()


def test_the_page_of_growth(run, monkeypatch):
    sizes = growth.SWEEPS["S"][1]
    monkeypatch.setattr(growth, "SWEEPS", {"S": ([1, 2], sizes, "linear")})
    page = run(growth, "--seconds=0")["page"]
    assert "## Samples\n\nIn theory linear. Exponent " in page
    assert "\n| S | 1 | 2 |\n| --- | --- | --- |\n| ms | " in page


def test_the_page_of_profiles(run):
    page = run(profiles, "toy")["page"]
    text, _, _ = profiles.PAGE.read_text().partition(profiles.MARKER)
    assert page.startswith(text + profiles.MARKER)
    assert "### toy" in page
