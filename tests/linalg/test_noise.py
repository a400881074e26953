import pytest
import torch

from inducing.linalg.noise import seeded, standard_gamma, standard_normal


@pytest.mark.parametrize(
    "draw", [lambda g: standard_normal((4,), torch.zeros(()), g), lambda g: standard_gamma(torch.ones(4), g)]
)
def test_a_generator_decides_and_the_global_state_is_untouched(draw):
    before = torch.get_rng_state()
    first, second = (draw(torch.Generator().manual_seed(3)) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert torch.equal(before, torch.get_rng_state())


def test_dtype_follows():
    assert standard_normal((2,), torch.zeros((), dtype=torch.float64)).dtype == torch.float64


def test_the_gamma_draw_is_differentiable_in_its_shape():
    # d E[s] / d alpha = 1 for Gamma(alpha, 1)
    concentration = torch.full((200_000,), 2.5, dtype=torch.float64, requires_grad=True)
    standard_gamma(concentration, torch.Generator().manual_seed(0)).sum().backward()
    gradients = concentration.grad
    z = (gradients.mean() - 1) / (gradients.std() / len(gradients) ** 0.5)
    assert abs(z) < 4


def test_one_seed_gives_independent_streams():
    first, again, other = (torch.randn(10_000, generator=seeded(0, purpose)) for purpose in ("a", "a", "b"))
    assert torch.equal(first, again)
    assert abs(torch.corrcoef(torch.stack([first, other]))[0, 1]) < 4 / 100
    assert not torch.equal(first, torch.randn(10_000, generator=torch.Generator().manual_seed(0)))
