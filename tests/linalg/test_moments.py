import pytest
import torch

from inducing.linalg.moments import moments_at_rows

# leading axes of k, W, a and T
SHARED = [(1, 1, 1, 1), (4, 1, 1, 1), (1, 1, 4, 1), (4, 1, 4, 1), (4, 4, 4, 1), (4, 4, 4, 4), (1, 1, 4, 4)]


def plain(cross, inverse, whitened, root):
    """The definition, under autograd."""
    projected = cross @ inverse.mT
    explained = projected.square().sum(-1, keepdim=True)
    if root is not None:
        explained = explained - (projected[:, None] @ root).square().sum(-1).mT
    return projected @ whitened, explained


def problem(samples, outputs, rows=150, size=7):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()

    cross, inverse, whitened, root = samples
    tensors = normal(cross, rows, size), normal(inverse, size, size), normal(whitened, size, 3)
    return (*tensors, normal(root, outputs, size, size) if outputs else None)


@pytest.mark.parametrize("outputs", [0, 1, 3])
@pytest.mark.parametrize("samples", SHARED)
def test_moments_and_gradients_are_those_of_the_definition(samples, outputs):
    tensors = problem(samples, outputs)
    learned = [tensor for tensor in tensors if tensor is not None]
    found, expected = moments_at_rows(*tensors), plain(*tensors)
    generator = torch.Generator().manual_seed(1)
    slopes = [torch.randn(each.shape, dtype=torch.float64, generator=generator) for each in found]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(*torch.broadcast_tensors(ours, theirs), rtol=1e-11, atol=1e-11)
    # the mean alone, what it explains alone, and both
    for chosen in ([0], [1], [0, 1]):
        gradients = [
            torch.autograd.grad(
                sum((each[i] * slopes[i]).sum() for i in chosen), learned, retain_graph=True, materialize_grads=True
            )
            for each in (found, expected)
        ]
        for ours, theirs in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_root_in_float32_keeps_six_digits(outputs):
    cross, inverse, whitened, root = problem((2, 1, 1, 1), outputs)
    exact, rounded = (
        moments_at_rows(cross, inverse, whitened, root),
        moments_at_rows(cross, inverse, whitened, root.float()),
    )
    size = plain(cross, inverse, whitened, None)[1]
    assert ((exact.explained - rounded.explained).abs() / size).max() < 1e-5
    torch.testing.assert_close(exact.mean, rounded.mean)
    assert rounded.explained.dtype == torch.float64


@pytest.mark.parametrize("outputs", [1, 3])
def test_gradients_with_a_root_in_float32_keep_five_digits(outputs):
    *tensors, root = problem((4, 1, 1, 1), outputs)

    def gradients(root):
        mean, explained = moments_at_rows(*tensors, root)
        return torch.autograd.grad(mean.sum() + explained.square().sum(), [*tensors, root])

    for exact, rounded in zip(gradients(root), gradients(root.detach().float().requires_grad_()), strict=True):
        assert (exact - rounded).abs().max() < 1e-5 * exact.abs().max()


def test_no_rows_have_no_moments():
    _, *others = problem((1, 1, 1, 1), 3)
    mean, explained = moments_at_rows(torch.zeros(1, 0, 7, dtype=torch.float64, requires_grad=True), *others)
    assert mean.shape == explained.shape == (1, 0, 3)
    (explained.sum() + mean.sum()).backward()


def test_where_the_posterior_is_the_prior_nothing_is_explained_and_kernels_have_no_gradient():
    cross, inverse, whitened, _ = problem((3, 1, 1, 1), 0)
    explained = moments_at_rows(cross, inverse, whitened, torch.eye(7).double()[None, None]).explained
    assert explained.abs().max() == 0.0
    for gradient in torch.autograd.grad(explained.sum(), [cross, inverse]):
        assert gradient.abs().max() == 0.0


def test_small_variances_keep_their_digits():
    """At an inducing input the variance is about the jitter, 1e-8 of the prior's."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(60, 1, dtype=torch.float64, generator=generator)
    matrix = torch.exp(-50 * (x - x.mT).square())
    jitter = 1e-8
    inverse = torch.linalg.inv(torch.linalg.cholesky(matrix + jitter * torch.eye(60)))
    explained = moments_at_rows(matrix[None], inverse[None], torch.zeros(1, 60, 1).double()).explained
    variance = 1 + jitter - explained[0, :, 0]
    # exact: 2 e - e^2 (K + eI)^-1_ii for the jitter e
    exact = 2 * jitter - jitter**2 * (inverse.mT @ inverse).diagonal()
    assert (variance / exact - 1).abs().max() < 1e-2
