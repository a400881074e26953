import ctypes
import sys

import pytest
import torch

import inducing
from inducing import memory


class Library:
    """Records the calls of the C library."""

    def __init__(self):
        self.calls = []

    def mallopt(self, parameter, value):
        self.calls.append((parameter, value))

    def malloc_trim(self, pad):
        self.calls.append("trim")


@pytest.fixture
def library(monkeypatch):
    recorded = Library()
    monkeypatch.setattr(memory, "_adjustable_glibc", lambda: recorded)
    return recorded


RAISED = [(memory.TRIM_THRESHOLD, memory.LARGEST_INT), (memory.MMAP_THRESHOLD, memory.LARGEST_INT)]
RESTORED = [*memory.DEFAULTS.items(), "trim"]


def test_memory_is_kept_inside_a_block_and_returned_afterwards(library):
    with memory.keeping_memory():
        assert library.calls == RAISED
        with memory.keeping_memory():
            pass
        assert library.calls == RAISED
    assert library.calls == RAISED + RESTORED


def test_it_is_returned_after_an_error(library):
    with pytest.raises(KeyError), memory.keeping_memory():
        raise KeyError
    assert library.calls == RAISED + RESTORED


def test_fit_keeps_memory(library):
    network = inducing.models.mlp(2, 1, [3], num_inducing=4)
    seen = []
    data = torch.zeros(5, 2), torch.zeros(5, 1)
    inducing.fit(
        network,
        inducing.Gaussian(),
        data,
        num_steps=1,
        progress=False,
        callbacks=lambda _: seen.append(library.calls[:]),
    )
    assert seen == [RAISED]
    assert library.calls == RAISED + RESTORED


@pytest.mark.parametrize(("name", "value"), [("MALLOC_ARENA_MAX", "2"), ("GLIBC_TUNABLES", "glibc.malloc.check=0")])
def test_settings_of_the_user_are_left_alone(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert memory._adjustable_glibc.__wrapped__() is None
    with memory.keeping_memory():
        pass


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_left_alone(monkeypatch, platform):
    monkeypatch.setattr(sys, "platform", platform)
    assert memory._adjustable_glibc.__wrapped__() is None


@pytest.mark.skipif(sys.platform != "linux", reason="the GNU C library")
def test_the_adjustable_glibc_accepts_the_settings(monkeypatch):
    for name in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    found = memory._adjustable_glibc.__wrapped__()
    if found is None:
        pytest.skip("another C library")
    assert isinstance(found, ctypes.CDLL)
    for parameter, value in memory.DEFAULTS.items():
        # mallopt returns 1 if it accepts a value
        assert found.mallopt(parameter, memory.LARGEST_INT) == 1
        assert found.mallopt(parameter, value) == 1


def test_predict_and_evaluate_keep_memory_between_batches(library):
    network, likelihood = inducing.models.mlp(2, 1, [3], num_inducing=4), inducing.Gaussian()
    x, y = torch.zeros(5, 2), torch.zeros(5, 1)
    inducing.predict(network, likelihood, x, 2)
    inducing.evaluate(network, likelihood, (x, y), 2)
    assert library.calls == []
    inducing.predict(network, likelihood, x, 2, batch_size=3)
    assert library.calls == RAISED + RESTORED
    inducing.evaluate(network, likelihood, (x, y), 2, batch_size=3)
    assert library.calls == 2 * (RAISED + RESTORED)
