"""Draws from N(A^-1 c, A^-1), and their gradients, against the plain formulas under autograd."""

import pytest
import torch

from inducing.linalg.conditional import condition

# samples of the matrix, of the cross term and of the noise; groups; columns
SHAPES = [(3, 3, 3, 2, 1), (1, 1, 3, 1, 4), (1, 3, 3, 2, 2), (3, 1, 3, 1, 2), (1, 1, 1, 1, 1)]


def make(matrices, crosses, samples, groups, columns, features=4):
    root = torch.randn(matrices, groups, features, features, dtype=torch.float64, requires_grad=True)
    cross = torch.randn(crosses, groups, features, columns, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(samples, groups, features, columns, dtype=torch.float64, requires_grad=True)
    return root, cross, noise


def spd(root):
    return root @ root.mT + torch.eye(root.shape[-1], dtype=root.dtype)


def plain(root, cross, noise, moments):
    matrix = spd(root)
    root = torch.linalg.inv(torch.linalg.cholesky(matrix)).mT
    mean = torch.linalg.inv(matrix) @ cross
    draw = mean + root @ noise
    return (draw, torch.logdet(matrix), mean, root) if moments else (draw, torch.logdet(matrix))


def fast(root, cross, noise, moments):
    matrix = spd(root)
    drawn = condition(matrix, torch.linalg.cholesky(matrix), cross, noise, moments)
    return tuple(part for part in drawn if part is not None)


@pytest.mark.parametrize("moments", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_those_of_the_plain_formulas(shape, moments):
    arguments = make(*shape)
    ours, expected = fast(*arguments, moments), plain(*arguments, moments)
    assert len(ours) == len(expected)
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other.expand(one.shape), rtol=1e-9, atol=1e-9)
    cotangents = [torch.randn_like(one) for one in ours]
    totals = [sum((a * b).sum() for a, b in zip(side, cotangents, strict=True)) for side in (ours, expected)]
    gradients = [torch.autograd.grad(total, arguments) for total in totals]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("moments", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients(shape, moments):
    assert torch.autograd.gradcheck(lambda *arguments: fast(*arguments, moments), make(*shape, features=3))


@pytest.mark.parametrize("index", range(4))
def test_gradients_of_one_result_alone(index):
    arguments = make(2, 2, 2, 1, 1)
    ours, expected = (f(*arguments, True)[index].square().sum() for f in (fast, plain))
    gradients = [torch.autograd.grad(total, arguments, allow_unused=True) for total in (ours, expected)]
    for one, other in zip(*gradients, strict=True):
        wanted = torch.zeros_like(one) if other is None else other
        torch.testing.assert_close(one, wanted, rtol=1e-9, atol=1e-9)


def test_chunks_change_nothing(monkeypatch):
    arguments = make(3, 3, 3, 2, 1)
    whole = torch.autograd.grad(fast(*arguments, True)[0].square().sum(), arguments)
    monkeypatch.setattr("inducing.linalg.conditional.CHUNK", 1)
    torch.testing.assert_close(torch.autograd.grad(fast(*arguments, True)[0].square().sum(), arguments), whole)


def test_second_derivatives_are_refused():
    arguments = make(1, 1, 1, 1, 1)
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(fast(*arguments, False)[0].square().sum(), arguments[:1], create_graph=True)
