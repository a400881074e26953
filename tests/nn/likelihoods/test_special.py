import math

import torch
from scipy.special import gammaln

from inducing.nn.likelihoods.special import LOG_LIMIT, soft_limit, stirling_remainder


def test_within_the_limit_nothing_changes():
    inside = torch.linspace(-LOG_LIMIT, LOG_LIMIT, 101).double()
    assert torch.equal(soft_limit(inside), inside)


def test_beyond_the_limit_the_exponential_is_linear():
    """With the value and the slope that it has at the limit."""
    far = torch.tensor([20.0, 21.0, 25.0, 1e4]).double()
    torch.testing.assert_close(soft_limit(far).exp(), math.exp(20) * (far - 19))
    torch.testing.assert_close(soft_limit(-far), -soft_limit(far))


def test_the_limit_has_a_gradient_everywhere():
    x = torch.tensor([-1e6, -20.5, -20.0, -1.0, 0.0, 20.0, 20.5, 1e6]).double().requires_grad_()
    assert torch.autograd.gradcheck(soft_limit, x[[0, 1, 3, 4, 6, 7]])
    (gradient,) = torch.autograd.grad(soft_limit(x).sum(), x)
    assert ((gradient > 0) & (gradient <= 1)).all()


def test_the_remainder_of_the_factorial():
    x = torch.cat([torch.tensor([0.0, 1e-8, 0.5, 15.99, 16.0]), torch.logspace(-3, 3, 50)]).double()
    expected = torch.as_tensor(gammaln(x.numpy() + 1)) - torch.xlogy(x, x) + x
    torch.testing.assert_close(stirling_remainder(x), expected, rtol=1e-11, atol=1e-11)
    assert torch.autograd.gradcheck(stirling_remainder, x[6:].clone().requires_grad_())
    # where log x! itself has no digits left
    torch.testing.assert_close(stirling_remainder(torch.tensor(1e12)).item(), math.log(2 * math.pi * 1e12) / 2)
