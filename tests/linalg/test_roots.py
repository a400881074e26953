import pytest
import torch

from inducing.linalg.roots import find_roots


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("used", [(True, False), (False, True), (True, True)], ids=["root", "inverse", "both"])
def test_roots_and_gradients_are_those_of_autograd(batch, used):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(*batch, 6, 9, dtype=torch.float64, generator=generator, requires_grad=True)
    slopes = torch.randn(2, *batch, 6, 6, dtype=torch.float64, generator=generator)
    factor = torch.linalg.cholesky(rows @ rows.mT)
    expected = factor, torch.linalg.solve_triangular(factor, torch.eye(6).double().expand_as(factor), upper=False)
    found = find_roots(rows @ rows.mT)
    gradients = []
    for pair in (found, expected):
        loss = sum((slope * each).sum() for slope, each, use in zip(slopes, pair, used, strict=True) if use)
        gradients.append(torch.autograd.grad(loss, rows)[0])
    torch.testing.assert_close(found.root, expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.inverse, expected[1], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)


def test_the_upper_triangle_of_a_gradient_does_not_matter():
    matrix = (torch.eye(4).double() + 0.5).requires_grad_()
    root, inverse = find_roots(matrix)
    upper = torch.ones(4, 4).double().triu(1)
    assert torch.autograd.grad(((root + inverse) * upper).sum(), matrix)[0].abs().max() == 0.0
