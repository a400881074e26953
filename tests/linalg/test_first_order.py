import pytest
import torch

import inducing


@pytest.mark.parametrize("posterior", ["dsvi", "local", "global"])
def test_second_derivatives_of_a_draw_are_refused(posterior):
    """Saved tensors would be taken as constants: the results would be wrong without a word."""
    x = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    network = inducing.models.deep_gp(2, 1, 1, posterior=posterior, inducing_points=x)
    draw = network.draw(2)
    rows = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(draw(rows).sum(), rows, create_graph=True)
    # once is fine
    assert torch.autograd.grad(draw(rows).sum(), rows)[0].isfinite().all()


def test_second_derivatives_of_weights_are_refused():
    network = inducing.models.mlp(2, 1, [4], num_inducing=6)
    loss = network(torch.zeros(3, 2), num_samples=2).square().sum()
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(loss, list(network.parameters()), create_graph=True, allow_unused=True)


def test_sampled_functions_have_second_derivatives():
    x = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    functions = inducing.models.deep_gp(2, 1, 2, inducing_points=x).sample_functions(1)
    torch.autograd.gradgradcheck(functions, x[:2].clone().requires_grad_())
