import pytest
import torch
from sklearn.gaussian_process import kernels as oracle
from torch.autograd import gradcheck

from inducing.nn.kernels import (
    ArcCosine,
    KernelModule,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    SquaredExponential,
    as_kernel,
    dot_products,
)

X = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
Y = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
LENGTHSCALES = [0.7, 1.3, 2.0]
KERNELS = {
    "squared-exponential": SquaredExponential(),
    "matern12": Matern12(1.5),
    "matern32": Matern32(1.5, ard=False),
    "matern52": Matern52(2.0, 0.5),
    "linear": Linear(),
    "arc-cosine": ArcCosine(),
    "deep arc-cosine": ArcCosine(depth=3),
    "sum": SquaredExponential() + Linear(),
    "product": SquaredExponential() * Linear(),
    "product of sums": (SquaredExponential() + Linear()) * (Matern32() + ArcCosine()),
}


def values_of(kernel, in_features=3):
    module = KernelModule(kernel, in_features).double()
    return tuple(value.detach() for value in module())


def stationary_values():
    return torch.tensor(LENGTHSCALES, dtype=torch.float64), torch.tensor(1.7, dtype=torch.float64)


@pytest.mark.parametrize(
    ("kernel", "reference"),
    [
        (SquaredExponential(), 1.7 * oracle.RBF(LENGTHSCALES)),
        (Matern12(), 1.7 * oracle.Matern(LENGTHSCALES, nu=0.5)),
        (Matern32(), 1.7 * oracle.Matern(LENGTHSCALES, nu=1.5)),
        (Matern52(), 1.7 * oracle.Matern(LENGTHSCALES, nu=2.5)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_stationary_kernels_equal_those_of_scikit_learn(kernel, reference):
    found = kernel.matrix(stationary_values(), X[None], Y[None])[0]
    torch.testing.assert_close(found, torch.as_tensor(reference(X.numpy(), Y.numpy())), rtol=1e-12, atol=1e-12)


def test_the_linear_kernel_equals_that_of_scikit_learn():
    values = torch.full((3,), 1.0, dtype=torch.float64), torch.tensor(0.49, dtype=torch.float64)
    found = Linear().matrix(values, X[None], Y[None])[0]
    torch.testing.assert_close(found, torch.as_tensor(oracle.DotProduct(0.7)(X.numpy(), Y.numpy())))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_arc_cosine_kernel_is_the_covariance_of_a_wide_network(depth):
    """Against Monte Carlo over one layer at a time, from the exact covariance below: 2 E[relu relu], |z| < 4."""
    weight, bias = torch.tensor(1.3, dtype=torch.float64), torch.tensor(0.2, dtype=torch.float64)
    below = (
        weight * X @ X.mT / 3 + bias if depth == 1 else ArcCosine(depth - 1).matrix((weight, bias), X[None], X[None])[0]
    )
    factor = torch.linalg.cholesky(below + 1e-10 * torch.eye(6, dtype=torch.float64))
    count = 400_000
    noise = torch.randn(count, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    relu = torch.relu(noise @ factor.mT)
    products = 2 * relu[:, :, None] * relu[:, None, :]
    expected = ArcCosine(depth).matrix((weight, bias), X[None], X[None])[0]
    z = (weight * products.mean(0) + bias - expected) / (weight * products.std(0) / count**0.5)
    assert z.abs().max() < 4


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
class TestEveryKernel:
    def test_the_diagonal_is_that_of_the_matrix(self, kernel):
        values = values_of(kernel)
        matrix = kernel.matrix(values, X[None], X[None])[0]
        torch.testing.assert_close(kernel.diagonal(values, X[None])[0], matrix.diagonal(), rtol=1e-9, atol=1e-9)

    def test_it_is_positive_definite_and_symmetric(self, kernel):
        matrix = kernel.matrix(values_of(kernel), X[None], X[None])[0]
        torch.testing.assert_close(matrix, matrix.mT)
        assert torch.linalg.eigvalsh(matrix).min() > -1e-9

    def test_samples_are_independent_batches(self, kernel):
        values, x = values_of(kernel), torch.stack([X, X.flip(0), X + 1])
        whole = kernel.matrix(values, x, Y[None])
        for one, rows in zip(whole, x, strict=True):
            torch.testing.assert_close(one, kernel.matrix(values, rows[None], Y[None])[0])

    def test_gradients_agree_with_finite_differences(self, kernel):
        # the rows of x differ from those of y, and from each other
        values = tuple(value.requires_grad_() for value in values_of(kernel))
        x, y = X[None, :3].clone().requires_grad_(), Y[None].clone().requires_grad_()
        assert gradcheck(lambda x, y, *values: kernel.matrix(values, x, y), (x, y, *values))

    def test_gradients_are_finite_where_rows_coincide(self, kernel):
        values = tuple(value.requires_grad_() for value in values_of(kernel))
        x = X[None, [0, 0, 1]].clone().requires_grad_()
        kernel.matrix(values, x, x).sum().backward()
        assert all(torch.isfinite(tensor.grad).all() for tensor in (x, *values))

    def test_random_features_have_the_kernel_as_their_covariance(self, kernel, monkeypatch):
        """E[phi_i(x) phi_i(y)] = k(x, y), |z| < 4; a deep network of finite width has it up to 1 / width."""
        monkeypatch.setattr(dot_products, "FEATURE_WIDTH", 256)
        deep = kernel == ArcCosine(depth=3)
        values, count, width = values_of(kernel), 100 if deep else 20_000, 256 if deep else 8
        features = kernel.features(values, (count, 3, width), torch.Generator().manual_seed(0))
        products = (features(X[None, :4])[:, :, None] * features(Y[None])[:, None]).mean(-1)
        error = (products.mean(0) - kernel.matrix(values, X[None, :4], Y[None])[0]).abs()
        assert (error < 4 * products.std(0) / count**0.5 + (2 / width if deep else 0)).all()

    def test_hyperparameters_are_named_and_positive(self, kernel):
        module = KernelModule(kernel, 3)
        assert all(name.startswith("scaled_log_") for name, _ in module.named_parameters())
        assert all((value > 0).all() and value.dtype == torch.float64 for value in module())

    def test_it_is_a_value(self, kernel):
        assert hash(kernel) == hash(type(kernel)(**vars(kernel)))
        assert kernel == type(kernel)(**vars(kernel))


def test_ard_has_a_lengthscale_for_each_input():
    assert KernelModule(SquaredExponential(), 5).scaled_log_lengthscale.shape == (5,)
    assert KernelModule(SquaredExponential(ard=False), 5).scaled_log_lengthscale.shape == (1,)
    torch.testing.assert_close(KernelModule(SquaredExponential(), 9)()[0], torch.full((9,), 3.0, dtype=torch.float64))


def test_hyperparameters_can_be_read():
    module = KernelModule(SquaredExponential(2.0, 0.5), 3)
    torch.testing.assert_close(module["lengthscale"], torch.full((3,), 2.0, dtype=torch.float64))
    assert repr(module) == "KernelModule(lengthscale=[2.0, 2.0, 2.0], variance=[0.5])"
    with pytest.raises(KeyError, match="Known: lengthscale, variance"):
        module["period"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SquaredExponential(lengthscale=-1.0), "lengthscale of SquaredExponential must be a positive number"),
        (lambda: Matern32(variance=0.0), "variance of Matern32 must be a positive number"),
        (lambda: Linear(bias=float("nan")), "bias of Linear must be a positive number"),
        (lambda: ArcCosine(depth=0), "depth must be a whole number of hidden layers"),
        (lambda: as_kernel("matern"), "did you mean 'matern"),
        (lambda: as_kernel(Linear), "pass an instance"),
    ],
)
def test_bad_kernels_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
