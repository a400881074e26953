"""Modules as steps."""

import operator

import pytest
import torch
from torch import nn
from torch.nn import functional

from inducing.nn.tracing import Addition, Operation, operations, trace

X = torch.linspace(-2, 2, 24).sin().reshape(6, 4)


class Small(nn.Module):
    """Two layers, combined by a function."""

    def __init__(self, combine):
        super().__init__()
        self.first, self.second, self.combine = nn.Linear(4, 4), nn.Linear(4, 4), combine

    def forward(self, x):
        return self.combine(self, x)


def run(steps, x):
    for step in steps:
        x = step.module(x) if isinstance(step, Operation) else run(step.body, x) + run(step.shortcut, x)
    return x


@pytest.mark.parametrize(
    "combine",
    [
        lambda m, x: m.second(m.first(x).relu()),
        lambda m, x: m.second(m.first(x) + x),
        lambda m, x: m.first(x) + m.second(x),
        lambda m, x: torch.add(x, m.second(torch.relu(x + m.first(x).tanh()))),
        lambda m, x: (m.first(x) + x).add(m.second(functional.silu(x))),
        lambda m, x: operator.iadd(m.first(x), m.second(x)),
        lambda m, x: x + x,
        lambda m, x: m.first(functional.relu(x, inplace=True).reshape(x.shape[0], -1)).sigmoid(),
    ],
)
def test_steps_are_the_module(combine):
    module = Small(combine)
    torch.testing.assert_close(run(trace(module), X), module(X.clone()))


def test_branches():
    relu, block = trace(Small(lambda m, x: (lambda h: h + m.second(m.first(h).tanh()))(x.relu())))
    assert isinstance(relu, Operation)
    assert isinstance(block, Addition)
    assert [each.name for each in block.body] == ["first", "tanh", "second"]
    assert block.shortcut == []
    assert [each.name for each in operations([relu, block])] == ["relu", "first", "tanh", "second"]


def test_batch_norm_is_folded_only_into_a_layer_that_nothing_else_uses():
    class Shared(nn.Module):
        def __init__(self, alone):
            super().__init__()
            self.layer, self.norm, self.alone = nn.Linear(4, 4), nn.BatchNorm1d(4), alone

        def forward(self, x):
            h = self.layer(x)
            return self.norm(h) if self.alone else self.norm(h) + h

    for alone, names in ((True, ["layer"]), (False, ["layer", "norm"])):
        module = Shared(alone)
        module(X)
        steps = trace(module)
        assert [each.name for each in operations(steps)] == names
        torch.testing.assert_close(run(steps, X), module.eval()(X))


@pytest.mark.parametrize(
    ("combine", "message"),
    [
        (lambda m, x: m.second(torch.cat([x, m.first(x)])), r"cat .*cannot be converted: known are modules"),
        (lambda m, x: m.first(m.first(x)), "first is used twice"),
        (lambda m, x: m.first(x) + 1, "only sums of two branches"),
        (lambda m, x: m.first(x) + m.second.bias, "no common input"),
        (lambda m, x: m.first(x) if x.sum() > 0 else x, "torch.fx cannot trace Small"),
        (lambda m, x: (m.first(x), m.second(x)), "one input and return one tensor"),
        (lambda m, x: m.first(x.view(-1, 4)), r"view .*cannot be converted"),
        # a ladder, which is not made of nested blocks
        (lambda m, x: (lambda h: (h + x) + m.second(h))(m.first(x)), "first is used twice"),
    ],
)
def test_what_is_refused(combine, message):
    with pytest.raises(ValueError, match=rf"{message}.*inducing.Deterministic\(body\)"):
        trace(Small(combine))
