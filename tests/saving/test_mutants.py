"""Mutants of model files and checkpoints that have valid checksums."""

import json
import subprocess
import sys

import pytest

from tests.saving import mutants


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    return mutants.subjects(tmp_path_factory.mktemp("originals"))


def test_the_originals_are_sound(subjects, tmp_path):
    for subject in subjects:
        if subject.entry == "inducing":
            assert mutants.try_checkpoint(subject, subject.header, subject.tensors, tmp_path) == "sound"
        else:
            subject.write(tmp_path / "same", subject.header, subject.tensors)
            assert mutants.try_model(tmp_path / "same", subject.header) == "sound"


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_a_few_mutants(subjects, tmp_path, first):
    for number in range(first, first + 20):
        outcome = mutants.attempt(number, subjects[number % len(subjects)], tmp_path)
        assert outcome in ("refused", "sound", "large", "numerical"), number


def test_mutants_of_a_blend(tmp_path):
    subject = mutants.blend(tmp_path)
    outcomes = {mutants.attempt(number, subject, tmp_path) for number in range(150)}
    assert {"refused", "sound"} <= outcomes <= {"refused", "sound", "large", "numerical"}


@pytest.mark.slow
def test_many_mutants_with_little_memory_and_time():
    """Each takes less than 2 seconds of the processor and 500 MB; none crashes the process."""
    command = [sys.executable, mutants.__file__, "0", "5000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"mutant {done.stderr.splitlines()[-1]} ended the process"
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["faults"] == []
    assert not summary["counts"].keys() & {"not finite", "checkpoint not finite"}
