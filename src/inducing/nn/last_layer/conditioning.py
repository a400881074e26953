"""New data update the draws of the last layer, given the layers below.

Given a draw of the layers below, the last layer f is Gaussian with a covariance C (covariance.py). A draw f of it becomes a
draw given new data y = f(x') + e, e ~ N(0, Sigma), by Matheron's rule:

    f(x) + C(x, x') (C(x', x') + Sigma)^-1 (y - f(x') - e)

The cost is cubic in the number of new rows. With a basis, C(x, x') = phi(x) phi(x')' + D, the same is

    f(x) + phi(x) (I + phi' W phi)^-1 phi' W (y - f(x') - e),    W = (D + Sigma)^-1, phi at the new rows

at a cost that is linear in the number of new rows. The draws of the layers below keep their equal weights. So the update is
exact for one layer, and for more layers it is exact given the layers below, as long as D = 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.arrays import evenly_spaced
from inducing.linalg.noise import seeded, standard_normal
from inducing.nn.draw import Chain, FunctionSamples
from inducing.nn.gp.functions import CHUNK
from inducing.nn.last_layer.covariance import Basis, Covariance, Rows
from inducing.nn.last_layer.draw import LastLayerDraw, draw_last_layer
from inducing.nn.likelihoods import Likelihood
from inducing.nn.network import Network

# new rows that become inducing inputs of a last Gaussian process, at most
MAX_INDUCING = 200


class Update(NamedTuple):
    """The correction C(x, x') c of the draws by new data, c = (C(x', x') + Sigma)^-1 (y - f(x') - e).

    Arguments:
        features: Features of the new rows.
        coefficients: c, for each output.
    """

    features: tuple[Tensor, ...]
    coefficients: Float[Tensor, "S *batch O n 1"]

    def correct(self, covariance: Covariance, rows: Rows) -> Float[Tensor, "S *batch q O"]:
        """Return the correction at rows of inputs of the last layer, which may have more batch axes than the new data."""
        missing = (rows.ndim - 3) - (self.coefficients.ndim - 4)

        def align(part: Tensor) -> Tensor:
            return part.reshape(len(part), *[1] * missing, *part.shape[1:])

        cross = covariance.between(covariance.features(rows), tuple(map(align, self.features)))
        return (cross @ align(self.coefficients))[..., 0].mT


class NewRows(NamedTuple):
    """New data at a draw of the network.

    Arguments:
        rows: The inputs h(x') of the last layer.
        variance: The diagonal of Sigma for each output.
        residual: y - f(x') - e. It is NaN for a missing target.
    """

    rows: Rows
    variance: Float[Tensor, "S *batch n O"]
    residual: Float[Tensor, "S *batch n O"]

    @classmethod
    def at(
        cls,
        rows: Rows,
        outputs: Float[Tensor, "S *batch n O"],
        targets: Float[Tensor, "*batch n O"],
        noise_variance: Float[Tensor, "..."],
        noise: Float[Tensor, "..."],
    ) -> NewRows:
        """Compute the residuals. See `update` for the arguments."""
        outputs = outputs.double()
        variance = noise_variance.double().expand(torch.broadcast_shapes(outputs.shape, noise_variance.shape))
        return cls(rows, variance, targets.double() - outputs - variance.sqrt() * noise)


def update(
    covariance: Covariance,
    rows: Rows,
    outputs: Float[Tensor, "S *batch n O"],
    targets: Float[Tensor, "*batch n O"],
    noise_variance: Float[Tensor, "..."],
    noise: Float[Tensor, "..."],
) -> Update:
    """Condition the draws on new data, with a dense matrix of all new rows.

    Arguments:
        covariance: The covariance of the last layer.
        rows: The inputs h(x') of the last layer at the new rows.
        outputs: The draws f(x').
        targets: y. Missing targets (NaN) are left out.
        noise_variance: The diagonal of Sigma for each output, which broadcasts with the outputs.
        noise: Standard normal noise z, with e = sqrt(Sigma) z, which broadcasts with the outputs.
    """
    return solve_rows(covariance, NewRows.at(rows, outputs, targets, noise_variance, noise))


def sample_updated_functions(
    network: Network,
    likelihood: Likelihood,
    x: Float[Tensor, "n *in"],
    y: Float[Tensor, "n O"],
    num_samples: int,
    seed: int = 0,
    num_inducing: int = MAX_INDUCING,
) -> FunctionSamples:
    """Sample functions of a network given new data, as a frozen module of the same kind as without them.

    Arguments:
        network: A fitted network.
        likelihood: Its likelihood.
        x: The new inputs.
        y: The new targets. Missing targets (NaN) are left out.
        num_samples: Number of functions.
        seed: Seed of the draw.
        num_inducing: The largest number of new rows that update a last Gaussian process exactly. Of more rows, this number,
            evenly spaced, become inducing inputs of a basis.
    """
    draws = draw_last_layer(network, num_samples, seed, likelihood)
    targets = list(range(y.shape[-1]))
    covariance, noise = draws.require_covariance().select(targets), seeded(seed, "noise of new data")
    with torch.no_grad():
        if len(x) <= covariance.max_dense_rows(num_inducing):
            found = solve_rows(covariance, _run(draws, likelihood, x, y, num_samples, noise))
            last = covariance.fold(draws.last, found.features, found.coefficients)
        else:
            basis = covariance.basis(
                _run_below(draws, x[evenly_spaced(len(x), num_inducing).to(x.device)], num_samples)
            )
            size = max(1, CHUNK // (num_samples * basis.num_features))
            pieces = zip(x.split(size), y.split(size), strict=True)
            new = (_run(draws, likelihood, *piece, num_samples, noise) for piece in pieces)
            last = basis.fold(draws.last, solve_features(basis, new))
    return FunctionSamples(Chain((draws.below, last)), network.input_shape, network.dtype)


def noise_variance(likelihood: Likelihood, outputs: Tensor) -> Tensor:
    """Return the variance of the noise for each output of the mean. Noise that is not Gaussian counts as Gaussian."""
    if likelihood.support != "real":
        raise TypeError(
            f"the exact update of the last layer needs noise with a variance, such as Gaussian(), but the likelihood is "
            f"{type(likelihood).__name__}. Update by gradient steps instead, e.g. num_steps=500"
        )
    return likelihood.variance(outputs)


def _run_below(draws: LastLayerDraw, x: Float[Tensor, "n *in"], num_samples: int) -> Float[Tensor, "S n F"]:
    """Return the inputs of the last layer of each draw."""
    rows = draws.below(x[None])
    return rows.expand(num_samples, *rows.shape[1:])


def _run(
    draws: LastLayerDraw,
    likelihood: Likelihood,
    x: Float[Tensor, "n *in"],
    y: Float[Tensor, "n O"],
    num_samples: int,
    generator: Generator,
) -> NewRows:
    """Run the draws at new data."""
    rows = _run_below(draws, x, num_samples)
    outputs = draws.last(rows)
    mean = likelihood.mean(outputs)
    noise = standard_normal(tuple(mean.shape), mean, generator)
    return NewRows.at(rows, mean, y, noise_variance(likelihood, outputs), noise)


def solve_rows(covariance: Covariance, new: NewRows) -> Update:
    """Return c = (C(x', x') + Sigma)^-1 (y - f(x') - e)."""
    features = covariance.features(new.rows)
    matrix, variance, residual = covariance.between(features, features), new.variance, new.residual
    missing = residual.isnan()
    if missing.any():
        # a missing target has c = 0
        observed = ~missing.mT
        matrix = matrix * (observed[..., :, None] & observed[..., None, :])
        variance, residual = torch.where(missing, 1.0, variance), torch.where(missing, 0.0, residual)
    factor = torch.linalg.cholesky(matrix + torch.diag_embed(variance.mT))
    return Update(features, torch.cholesky_solve(residual.mT[..., None], factor))


def solve_features(basis: Basis, pieces: Iterable[NewRows]) -> Float[Tensor, "S O K 1"]:
    """Return (I + phi' W phi)^-1 phi' W (y - f(x') - e), summed over pieces of the new rows."""
    gram = projection = torch.zeros((), dtype=torch.float64)
    for new in pieces:
        features, residual_variance = basis.features(new.rows)
        missing = new.residual.isnan()
        weights = torch.where(missing, 0.0, 1 / (new.variance + residual_variance[..., None])).mT[..., None]
        # phi' W phi, and phi' W (y - f(x') - e)
        weighted = weights * features
        gram = gram + weighted.mT @ features
        projection = projection + weighted.mT @ torch.where(missing, 0.0, new.residual).mT[..., None]
    identity = torch.eye(basis.num_features, dtype=gram.dtype, device=gram.device)
    return torch.cholesky_solve(projection, torch.linalg.cholesky(identity + gram))
