import threading

import pytest
import torch
from torch import nn

import inducing
from inducing.nn.draw import FunctionSamples
from inducing.prediction.running import LEAST_ROWS, run_functions


def functions(device="cpu"):
    network = inducing.models.mlp(3, 2, [20], num_inducing=5, generator=torch.Generator().manual_seed(0))
    return network.sample_functions(200, seed=0).to(device)


def rows(count):
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("count", [0, 1, 7, 3000])
def test_outputs_are_those_of_one_call(count):
    sampled, x = functions(), rows(count)
    torch.testing.assert_close(run_functions(sampled, x), sampled(x), rtol=1e-5, atol=1e-6)


def test_outputs_do_not_depend_on_the_number_of_threads(monkeypatch):
    sampled, x = functions(), rows(5000)
    outputs = []
    for count in (1, 2, 5):
        monkeypatch.setattr("inducing.prediction.running.threads_of_user", lambda count=count: count)
        outputs.append(run_functions(sampled, x))
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])


class Recording(nn.Module):
    """Records the thread, its number of torch threads, and the number of rows of each call, with samples folded into them."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, x):
        self.calls.append((threading.get_ident(), torch.get_num_threads(), len(x)))
        return x


def recorded():
    network = inducing.Network([inducing.Linear(3, 2, posterior="factorised"), Recording()])
    network.layers[1].requires_grad_(False)
    sampled = network.sample_functions(2)
    module = next(module for module in sampled.modules() if isinstance(module, Recording))
    return sampled, module


def test_several_threads_run_pieces_with_one_torch_thread_each(monkeypatch):
    monkeypatch.setattr("inducing.prediction.running.threads_of_user", lambda: 2)
    sampled, module = recorded()
    before = torch.get_num_threads()
    assert isinstance(sampled, FunctionSamples)
    run_functions(sampled, rows(100_000))
    threads, counts, _ = zip(*module.calls, strict=True)
    assert threading.get_ident() not in threads
    assert set(counts) == {1}
    assert torch.get_num_threads() == before


def test_a_piece_has_at_most_the_rows_of_a_batch():
    sampled, module = recorded()
    run_functions(sampled, rows(50), batch_size=7)
    assert max(count for *_, count in module.calls) == 2 * 7
    module.calls.clear()
    run_functions(sampled, rows(50))
    assert [count for *_, count in module.calls] == [2 * 50]
    assert LEAST_ROWS > 7


def test_no_gradients_and_errors_of_a_piece_reach_the_caller():
    assert not run_functions(functions(), rows(3000).requires_grad_()).requires_grad
    with pytest.raises(TypeError, match="float64"):
        run_functions(functions(), rows(3000).double())
