"""Roots that are known, of functions that are hard in different ways."""

import pytest
import torch

from inducing.prediction.roots import find_root

ROOTS = torch.tensor([-3.0, -1e-9, 0.0, 1e-12, 0.7, 5.0], dtype=torch.float64)
LOW, HIGH = torch.full((6,), -10.0).double(), torch.full((6,), 20.0).double()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: x**3,
        lambda x: torch.expm1(3 * x),
        lambda x: torch.log1p(x.abs()) * x.sign(),
        torch.sign,
    ],
)
def test_roots_are_found(function):
    found = find_root(lambda x: function(x - ROOTS), LOW, HIGH)
    torch.testing.assert_close(found, ROOTS, rtol=1e-14, atol=1e-14)


def test_smooth_functions_take_few_steps():
    calls = []

    def function(x):
        calls.append(x)
        return torch.special.log_ndtr(x) + torch.arange(1.0, 7.0).double()

    found = find_root(function, LOW, HIGH)
    torch.testing.assert_close(torch.special.log_ndtr(found), -torch.arange(1.0, 7.0).double(), rtol=1e-13, atol=0)
    assert len(calls) < 20


def test_ends_may_be_roots_and_may_be_the_same():
    same = torch.tensor([2.0, -1.0, 0.0]).double()
    assert torch.equal(find_root(lambda x: x - same, same, same), same)
    ends = torch.tensor([1.0, 4.0]).double()
    found = find_root(lambda x: x - torch.tensor([1.0, 4.0]), torch.ones(2).double(), torch.full((2,), 4.0).double())
    torch.testing.assert_close(found, ends, rtol=1e-14, atol=0)
