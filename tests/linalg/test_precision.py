import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from inducing.linalg.precision import BlockDiagonal, Dense, Kronecker, ScaledIdentity, ScaleMoments
from inducing.linalg.wishart import sample_inverse_wishart


def spd(samples, size):
    root = torch.randn(samples, size, size, dtype=torch.float64)
    return root @ root.mT + torch.eye(size, dtype=torch.float64)


def scaled_identity(samples, size):
    return ScaledIdentity(torch.rand(samples, dtype=torch.float64) + 0.5, size)


def inverse_wishart(samples, size):
    degrees = torch.full((1,), size + 1.0, dtype=torch.float64)
    return sample_inverse_wishart(torch.linalg.cholesky(spd(1, size)), degrees, samples)


PRECISIONS = {
    "identity, shared": lambda: scaled_identity(1, 6),
    "identity, per sample": lambda: scaled_identity(3, 6),
    "dense, shared": lambda: Dense(spd(1, 6)),
    "dense, per sample": lambda: Dense(spd(3, 6)),
    "kronecker of identity and dense": lambda: Kronecker(scaled_identity(1, 2), Dense(spd(3, 3))),
    "kronecker of dense and identity": lambda: Kronecker(Dense(spd(3, 3)), scaled_identity(3, 2)),
    "kronecker of dense and dense": lambda: Kronecker(Dense(spd(1, 2)), Dense(spd(1, 3))),
    "kronecker, nested": lambda: Kronecker(Kronecker(Dense(spd(1, 2)), scaled_identity(3, 1)), Dense(spd(1, 3))),
    "inverse-Wishart, shared": lambda: inverse_wishart(1, 6),
    "inverse-Wishart, per sample": lambda: inverse_wishart(3, 6),
    "kronecker of identity and inverse-Wishart": lambda: Kronecker(scaled_identity(1, 2), inverse_wishart(3, 3)),
    "kronecker of inverse-Wishart and inverse-Wishart": lambda: Kronecker(inverse_wishart(3, 2), inverse_wishart(3, 3)),
    "kronecker of a scale and inverse-Wishart": lambda: Kronecker(scaled_identity(1, 1), inverse_wishart(3, 6)),
    "blocks": lambda: BlockDiagonal(Dense(spd(1, 2)), Dense(spd(3, 4))),
    "blocks, spatial and bias": lambda: BlockDiagonal(
        Kronecker(scaled_identity(1, 1), inverse_wishart(3, 5)), scaled_identity(1, 1)
    ),
    "blocks, shared by all samples and bias": lambda: BlockDiagonal(
        Kronecker(Dense(spd(1, 5)), inverse_wishart(1, 1)), scaled_identity(3, 1)
    ),
}


@pytest.fixture(params=PRECISIONS, ids=str)
def precision(request):
    return PRECISIONS[request.param]()


@pytest.fixture
def weights():
    """(S, G, F, C)."""
    return torch.randn(3, 2, 6, 4, dtype=torch.float64)


def test_every_operation_equals_the_dense_one(precision, weights):
    dense = precision.dense()[:, None]
    assert precision.size == dense.shape[-1] == 6
    torch.testing.assert_close(precision.matmul(weights), dense @ weights)
    torch.testing.assert_close(precision.solve(weights), torch.linalg.solve(dense, weights))
    torch.testing.assert_close(precision.logdet(), torch.logdet(dense[:, 0]))
    torch.testing.assert_close(precision.diagonal(), dense[:, 0].diagonal(dim1=-2, dim2=-1))
    quadratic = torch.einsum("sgfc,sfh,sghc->s", weights, dense[:, 0].expand(3, -1, -1), weights)
    torch.testing.assert_close(precision.quadratic(weights), quadratic)
    gram = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(precision.add_to(gram.clone()), gram + dense)


def test_weights_and_precisions_broadcast_over_samples(precision, weights):
    every = weights[:1].expand(3, -1, -1, -1)
    for operation in (precision.matmul, precision.solve, precision.colour, precision.quadratic):
        once = operation(weights[:1])
        torch.testing.assert_close(once.expand_as(operation(every)), operation(every))


def test_another_dtype_keeps_the_matrix(precision):
    torch.testing.assert_close(precision.to(torch.float32).dense(), precision.dense().float(), rtol=1e-2, atol=1e-2)
    assert precision.to(torch.float32).logdet().dtype == torch.float32


def test_colouring_gives_the_covariance_exactly(precision):
    # H^-T H^-1 = P^-1, with z the columns of the identity
    root = precision.colour(torch.eye(6, dtype=torch.float64).expand(3, 1, -1, -1))[:, 0]
    inverse = torch.linalg.inv(precision.dense()).expand(3, -1, -1)
    torch.testing.assert_close(root @ root.mT, inverse)


def test_the_kronecker_product_is_torchs():
    left, right = spd(1, 2), spd(1, 3)
    torch.testing.assert_close(Kronecker(Dense(left), Dense(right)).dense()[0], torch.kron(left[0], right[0]))


def test_the_density_is_that_of_torch_distributions(precision, weights):
    # log N(w; 0, P^-1) from logdet and quadratic form
    normaliser = weights[0].numel() * math.log(2 * math.pi)
    ours = (8 * precision.logdet() - precision.quadratic(weights) - normaliser) / 2
    for sample in range(3):
        matrix = precision.dense()[min(sample, len(precision.dense()) - 1)]
        normal = MultivariateNormal(torch.zeros(6, dtype=torch.float64), precision_matrix=matrix)
        torch.testing.assert_close(ours[sample], normal.log_prob(weights[sample].mT).sum(), rtol=1e-8, atol=1e-8)


def test_the_expectation_of_a_matrix_that_is_not_random_is_itself():
    for matrix in (scaled_identity(1, 6), Dense(spd(1, 6))):
        mean, logdet = matrix.expectation()
        assert mean is matrix
        assert torch.equal(logdet, matrix.logdet())


def test_the_expectation_of_products_and_blocks_is_that_of_their_parts():
    scale = ScaledIdentity(torch.tensor([3.0]), 2, ScaleMoments(torch.tensor([2.0]), torch.tensor([0.5])))
    fixed = Dense(spd(1, 3).float())
    mean, logdet = Kronecker(scale, fixed).expectation()
    torch.testing.assert_close(mean.dense(), 2 * torch.block_diag(*[fixed.matrix[0]] * 2)[None])
    torch.testing.assert_close(logdet, 3 * (2 * 0.5) + 2 * fixed.logdet())
    mean, logdet = BlockDiagonal(scale, fixed).to(torch.float64).expectation()
    torch.testing.assert_close(mean.dense().float()[0], torch.block_diag(2 * torch.eye(2), fixed.matrix[0]))
    torch.testing.assert_close(logdet.float(), 2 * 0.5 + fixed.logdet())
