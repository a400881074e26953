"""The textbook implementation of global inducing points for fully connected networks: the other side of the benchmarks.

It is the paper's Algorithm 1 as one would first write it down, and much like the code that the paper released:
inducing points concatenated to the data, a precision matrix for each output unit even where all share one, `cholesky`
and `cholesky_solve` under autograd, and log-densities from their formulas.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn


class TextbookLayer(nn.Module):
    """W ~ Q(W | U), for each output its own N(mean, precision^-1).

    Arguments:
        in_features: Number of inputs.
        out_features: Number of outputs.
        pseudo_outputs: First values of V.
        per_output: Whether each output learns a precision of its own.
        log_precision: First value of its logarithm.
        expand: Whether the precision matrix is written out for each output before it is factorised. The released code does
            that after the factorisation, for the solves.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        pseudo_outputs: Float[Tensor, "M O"],
        per_output: bool,
        log_precision: float,
        expand: bool = True,
    ) -> None:
        super().__init__()
        self.fan_in, self.out_features, self.expand = in_features + 1, out_features, expand
        self.pseudo_outputs = nn.Parameter(pseudo_outputs.mT[..., None].clone())
        groups = out_features if per_output else 1
        self.log_precision = nn.Parameter(torch.full((groups, 1, len(pseudo_outputs)), log_precision))

    def forward(self, x: Float[Tensor, "S N D"]) -> tuple[Float[Tensor, "S N O"], Float[Tensor, " S"]]:
        """Sample the weights given the first M rows, and send all rows through; with log P - log Q."""
        samples, features = len(x), self.fan_in
        x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
        inducing = x[:, None, : self.pseudo_outputs.shape[1]]
        # X' Lambda, X' Lambda X + P, X' Lambda v
        weighted = inducing.mT * self.log_precision.exp()
        precision = weighted @ inducing + features * torch.eye(features, dtype=x.dtype)
        if self.expand:
            precision = precision.expand(-1, self.out_features, -1, -1)
        cross = weighted @ self.pseudo_outputs
        # W = precision^-1 X' Lambda v + T^-T z
        factor = torch.linalg.cholesky(precision)
        mean = torch.cholesky_solve(cross, factor)
        noise = torch.randn(samples, self.out_features, features, 1, dtype=x.dtype)
        weights = mean + torch.linalg.solve_triangular(factor.mT, noise, upper=True)
        # log N(w; 0, I / F) - log N(w; mean, precision^-1)
        count = self.out_features * features
        log_p = -0.5 * (features * weights.square().sum((1, 2, 3)) + count * math.log(2 * math.pi / features))
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1).expand(-1, self.out_features).sum(-1)
        log_q = -0.5 * (noise.square().sum((1, 2, 3)) - logdet + count * math.log(2 * math.pi))
        return x @ weights[..., 0].mT, log_p - log_q


class TextbookNetwork(nn.Module):
    """A fully connected ReLU network with Gaussian noise, and its ELBO.

    Arguments:
        widths: Numbers of inputs, hidden units and outputs.
        inducing_points: First values of U_0.
        inducing_targets: First values of the last layer's V.
        per_output: Whether each output learns a precision of its own.
        expand: As in `TextbookLayer`.
    """

    def __init__(
        self,
        widths: list[int],
        inducing_points: Float[Tensor, "M D"],
        inducing_targets: Float[Tensor, "M O"],
        per_output: bool = False,
        expand: bool = True,
    ) -> None:
        super().__init__()
        self.inducing_points = nn.Parameter(inducing_points.clone())
        self.log_variance = nn.Parameter(torch.tensor(-3.0))
        rows, last = len(inducing_points), len(widths) - 2
        self.layers = nn.ModuleList(
            TextbookLayer(
                fan_in,
                fan_out,
                inducing_targets if index == last else torch.randn(rows, fan_out, dtype=inducing_points.dtype),
                per_output,
                0.0 if index == last else -4.0,
                expand,
            )
            for index, (fan_in, fan_out) in enumerate(pairwise(widths))
        )

    def forward(self, x: Float[Tensor, "B D"], num_samples: int) -> tuple[Float[Tensor, "S B O"], Float[Tensor, " S"]]:
        """Outputs of a batch under each sample, and log P - log Q of all weights."""
        rows = torch.cat([self.inducing_points, x]).expand(num_samples, -1, -1)
        log_ratio = x.new_zeros(num_samples)
        for index, layer in enumerate(self.layers):
            rows, own = layer(rows if index == 0 else torch.relu(rows))
            log_ratio = log_ratio + own
        return rows[:, len(self.inducing_points) :], log_ratio

    def elbo(self, x: Float[Tensor, "B D"], y: Float[Tensor, "B O"], num_samples: int) -> Float[Tensor, " S"]:
        """One sample of the ELBO for each sample of the weights, all data in one batch."""
        outputs, log_ratio = self(x, num_samples)
        noise = torch.distributions.Normal(outputs, (0.5 * self.log_variance).exp())
        return noise.log_prob(y).sum((1, 2)) + log_ratio
