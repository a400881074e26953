import pickle
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import inducing
from inducing.nn.draw import Chain, Function, FunctionSamples, Sum
from inducing.nn.layers.plain import Folded


@dataclass(frozen=True, eq=False)
class Shift(Function):
    amount: Tensor

    def __call__(self, x):
        return x + self.amount


@dataclass(frozen=True, eq=False)
class Noise(Function):
    @property
    def consistent(self):
        return False

    def __call__(self, x):
        return x + torch.randn_like(x)


def shift(value):
    return Shift(torch.full((2, 1, 1), value))


class Buffered(nn.Module):
    """A plain module with a constant: it must move with the function."""

    def __init__(self):
        super().__init__()
        self.register_buffer("constant", torch.tensor(2.0))

    def forward(self, x):
        return x * self.constant


def test_chain_and_sum_compose():
    x = torch.zeros(1, 3, 1)
    assert torch.equal(Chain((shift(1.0), shift(2.0)))(x), torch.full((2, 3, 1), 3.0))
    assert torch.equal(Sum(shift(1.0), Chain(()))(x + 1), torch.full((2, 3, 1), 3.0))


def test_consistency_is_that_of_all_parts():
    assert Chain((shift(1.0), Sum(shift(1.0), Chain(())))).consistent
    assert not Chain((shift(1.0), Sum(Noise(), Chain(())))).consistent
    with pytest.raises(ValueError, match="resamples"):
        FunctionSamples(Chain((Noise(),)), (1,), torch.float32)


def test_frozen_functions_are_modules_whose_tensors_are_buffers():
    frozen = FunctionSamples(Chain((shift(1.0), Sum(Folded(Buffered()), shift(3.0)))), (1,), torch.float32)
    assert list(frozen.state_dict()) == ["steps_0_amount", "steps_1_shortcut_amount", "steps_1_body_module.constant"]
    assert not list(frozen.parameters())
    moved = frozen.double()
    assert moved(torch.ones(4, 1, dtype=torch.float64)).dtype == torch.float64
    restored = pickle.loads(pickle.dumps(frozen))
    x = torch.ones(4, 1, dtype=torch.float64)
    assert torch.equal(restored(x), frozen(x))
    assert torch.equal(frozen(x)[0, :, 0], torch.full((4,), 2 * 2.0 + (2 + 3), dtype=torch.float64))


def test_frozen_functions_can_be_differentiated_in_x():
    network = inducing.models.mlp(3, 1, num_inducing=5)
    x = torch.randn(4, 3, requires_grad=True)
    network.sample_functions(2, seed=0)(x).sum().backward()
    assert x.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in network.parameters())


def test_frozen_functions_check_their_inputs():
    functions = inducing.models.mlp(3, 1, num_inducing=5).sample_functions(2)
    with pytest.raises(ValueError, match=r"x must have shape \(B, 3\), got \(4, 2\)"):
        functions(torch.zeros(4, 2))
    with pytest.raises(TypeError, match=r"x is torch\.float64"):
        functions(torch.zeros(4, 3).double())


def test_hidden_functions_are_reachable():
    network = inducing.models.mlp(3, 1, [7, 4], num_inducing=5)
    draw = network.draw(2)
    hidden = Chain(draw.function.steps[:3])(torch.randn(1, 6, 3))
    assert hidden.shape == (2, 6, 4)
    assert Chain(draw.function.steps[3:])(hidden).shape == (2, 6, 1)


def test_drawn_functions_can_be_pickled():
    draw = inducing.models.mlp(3, 1, num_inducing=5).draw(2)
    detached = draw.function.map(Tensor.detach)
    x = torch.randn(1, 4, 3)
    assert torch.equal(pickle.loads(pickle.dumps(detached))(x), draw.function(x))


def test_drawn_layers_can_be_called():
    draw = inducing.Network([inducing.Linear(3, 4), inducing.Linear(4, 2)], num_inducing=5).draw(6)
    x = torch.randn(7, 3)
    hidden = draw.layers[0](x[None])
    assert hidden.shape == (6, 7, 4)
    assert torch.equal(draw.layers[1](hidden), draw(x))
    for wrong in (x, hidden[:2]):
        with pytest.raises(ValueError, match=r"S = 6.*Use h\[None\]"):
            draw.layers[0](wrong)
