"""Features of the covariance of the last layer. Oracles: dense matrices of all rows."""

import pytest
import torch

import inducing
from inducing.nn.last_layer import draw_last_layer
from inducing.nn.last_layer.conditioning import NewRows, solve_features, solve_rows
from inducing.nn.last_layer.covariance import ProcessBasis

LAYERS = {
    "linear": lambda: inducing.Linear(4, 2),
    "full-per-output": lambda: inducing.Linear(4, 2, posterior=inducing.GlobalInducing("full_per_output")),
    "factorised": lambda: inducing.Linear(4, 2, posterior="factorised", bias=False),
    "gp": lambda: inducing.GPLayer(4, 2, jitter=1e-9),
    "dsvi": lambda: inducing.GPLayer(4, 2, "matern32", posterior="dsvi", jitter=1e-9),
}
POINTS = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)).double()


def drawn(name):
    network = inducing.Network([inducing.Linear(2, 4), torch.nn.Tanh(), LAYERS[name]()], inducing_points=POINTS[:6])
    return draw_last_layer(network, 3, seed=4)


def new_rows(draws):
    """New data with noise that differs between rows and outputs, and a missing target."""
    generator = torch.Generator().manual_seed(1)
    rows = draws.below(POINTS[None])
    variance, residual = torch.rand(2, 3, 40, 2, generator=generator).double()
    residual[:, 7, 1] = torch.nan
    return NewRows(rows, 0.1 + variance, residual)


@pytest.mark.parametrize("name", LAYERS)
def test_a_basis_of_all_rows_gives_the_update_of_the_dense_matrix(name):
    draws = drawn(name)
    new, covariance = new_rows(draws), draws.covariance
    dense = solve_rows(covariance, new)
    basis = covariance.basis(new.rows)
    at = draws.below(1.3 * POINTS[None])
    expected = covariance.fold(draws.last, dense.features, dense.coefficients)(at)
    found = basis.fold(draws.last, solve_features(basis, [new]))(at)
    # a Gaussian process has its jitter in the basis only
    tolerance = 1e-5 if isinstance(basis, ProcessBasis) else 1e-10
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", LAYERS)
def test_the_update_of_a_basis_is_that_of_its_own_covariance(name):
    draws = drawn(name)
    new, at = new_rows(draws), draws.below(1.3 * POINTS[None])
    basis = draws.covariance.basis(new.rows[:, ::8])
    features, residual_variance = basis.features(new.rows)
    # Q (Q + D + Sigma)^-1 (y - f - e) with Q = phi phi', of the observed targets
    noise = (residual_variance[..., None] + new.variance).mT
    matrix = features @ features.mT + torch.diag_embed(noise)
    cross = basis.features(at)[0] @ features.mT
    found = basis.fold(draws.last, solve_features(basis, [new]))(at) - draws.last(at)
    for output in range(2):
        seen = ~new.residual[0, :, output].isnan()
        kernel, between = matrix[:, output][:, seen][:, :, seen], cross[:, min(output, cross.shape[1] - 1)][..., seen]
        expected = between @ torch.linalg.solve(kernel, new.residual[:, seen, output, None])
        torch.testing.assert_close(found[..., output], expected[..., 0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", LAYERS)
def test_pieces_of_the_new_rows_add_up(name):
    draws = drawn(name)
    new = new_rows(draws)
    basis = draws.covariance.basis(new.rows[:, ::8])
    pieces = [NewRows(*parts) for parts in zip(*(part.split(9, 1) for part in new), strict=True)]
    torch.testing.assert_close(solve_features(basis, pieces), solve_features(basis, [new]))


def test_a_basis_explains_its_own_rows_and_leaves_no_negative_variance():
    draws = drawn("gp")
    rows = draws.below(POINTS[None])
    basis = draws.covariance.basis(rows[:, ::2])
    features, residual_variance = basis.features(rows)
    of_all = draws.covariance.features(rows)
    exact = draws.covariance.between(of_all, of_all)
    torch.testing.assert_close((features @ features.mT)[..., ::2, ::2], exact[..., ::2, ::2], rtol=0, atol=1e-6)
    total = (features.square().sum(-1) + residual_variance[:, None]).expand(-1, 2, -1)
    torch.testing.assert_close(total, exact.diagonal(dim1=-2, dim2=-1).expand(-1, 2, -1), rtol=0, atol=1e-6)
    assert (residual_variance >= 0).all()
    assert residual_variance[:, 1::2].max() > 1e-4
