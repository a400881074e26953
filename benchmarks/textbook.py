"""A careful plain implementation of global inducing points for fully connected networks: the other side of the benchmarks.

It is the paper's Algorithm 1 in standard PyTorch operations under autograd, without formulas of its own for gradients.
What outputs or samples share is computed once: a shared precision has one factorisation, and the first layer, whose inputs
are the same for all samples, has one for all samples. Each weight takes two triangular solves, batched. The precision is
always factorised in the space of the features, also where there are fewer inducing points than features.
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
        pseudo_outputs: Initial values of V.
        per_output: Whether each output learns a precision of its own.
        log_precision: Initial value of its logarithm.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        pseudo_outputs: Float[Tensor, "M O"],
        per_output: bool,
        log_precision: float,
    ) -> None:
        super().__init__()
        self.fan_in, self.out_features = in_features + 1, out_features
        # outputs in groups that share a precision: one group, or one for each output
        groups = out_features if per_output else 1
        rows = len(pseudo_outputs)
        self.pseudo_outputs = nn.Parameter(pseudo_outputs.unflatten(1, (groups, -1)).transpose(0, 1).contiguous())
        self.log_precision = nn.Parameter(torch.full((groups, 1, rows), log_precision, dtype=pseudo_outputs.dtype))

    def forward(
        self, inducing: Float[Tensor, "distinct M D"], num_samples: int
    ) -> tuple[Float[Tensor, "S F O"], Float[Tensor, " S"]]:
        """Sample the weights given the layer's inducing inputs, one for each sample or one for all; with log P - log Q."""
        features, distinct, groups = self.fan_in, len(inducing), len(self.log_precision)
        rows = torch.cat([inducing, torch.ones_like(inducing[..., :1])], -1)[:, None]
        # X' Lambda, A = X' Lambda X + P
        weighted = rows.mT * self.log_precision.exp()
        precision = weighted @ rows + features * torch.eye(features, dtype=rows.dtype)
        # A = T T', W = T^-T (T^-1 X' Lambda v + z)
        factor = torch.linalg.cholesky(precision)
        whitened = torch.linalg.solve_triangular(factor, weighted @ self.pseudo_outputs, upper=False)
        shape = distinct, groups, features, num_samples // distinct, self.out_features // groups
        noise = torch.randn(shape, dtype=rows.dtype)
        columns = (whitened[..., None, :] + noise).flatten(-2)
        solved = torch.linalg.solve_triangular(factor.mT, columns, upper=True).view(shape)
        # (distinct, groups, F, S / distinct, O / groups) to (S, F, O)
        weights = solved.permute(0, 3, 2, 1, 4).reshape(num_samples, features, self.out_features)
        # log N(w; 0, I / F) - log N(w; mean, A^-1); the terms in 2 pi cancel
        log_p = -0.5 * features * weights.square().sum((1, 2)) + 0.5 * weights[0].numel() * math.log(features)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum((1, 2)) * (self.out_features // groups)
        squares = noise.square().sum((1, 2, 4)).flatten()
        return weights, log_p + 0.5 * (squares - logdet.repeat_interleave(num_samples // distinct))


class TextbookNetwork(nn.Module):
    """A fully connected ReLU network with Gaussian noise, and its ELBO.

    Arguments:
        widths: Numbers of inputs, hidden units and outputs.
        inducing_points: Initial values of U_0.
        inducing_targets: Initial values of the last layer's V.
        per_output: Whether each output learns a precision of its own.
    """

    def __init__(
        self,
        widths: list[int],
        inducing_points: Float[Tensor, "M D"],
        inducing_targets: Float[Tensor, "M O"],
        per_output: bool = False,
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
            )
            for index, (fan_in, fan_out) in enumerate(pairwise(widths))
        )

    def draw(self, num_samples: int) -> tuple[list[Float[Tensor, "S F O"]], Float[Tensor, " S"]]:
        """Weights of all layers, and their log P - log Q."""
        drawn: list[Tensor] = []
        log_ratio, inducing = self.inducing_points.new_zeros(num_samples), self.inducing_points[None]
        for layer in self.layers:
            if drawn:
                inducing = torch.relu(_affine(inducing, drawn[-1]))
            weights, own = layer(inducing, num_samples)
            drawn, log_ratio = [*drawn, weights], log_ratio + own
        return drawn, log_ratio

    def elbo(self, x: Float[Tensor, "B D"], y: Float[Tensor, "B O"], num_samples: int) -> Float[Tensor, " S"]:
        """One sample of the ELBO for each sample of the weights, all data in one batch."""
        weights, log_ratio = self.draw(num_samples)
        variance = self.log_variance.exp()
        squares = (y - run(weights, x)).square().sum((1, 2))
        log_likelihood = -0.5 * (squares / variance + y.numel() * (self.log_variance + math.log(2 * math.pi)))
        return log_likelihood + log_ratio


def run(weights: list[Float[Tensor, "S F O"]], x: Float[Tensor, "B D"]) -> Float[Tensor, "S B O"]:
    """Outputs of a batch under each sample of the weights."""
    outputs = _affine(x[None], weights[0])
    for layer in weights[1:]:
        outputs = _affine(torch.relu(outputs), layer)
    return outputs


def _affine(x: Tensor, weights: Tensor) -> Tensor:
    # the last row of the weights is the bias
    return torch.baddbmm(weights[:, -1:], x.expand(len(weights), -1, -1), weights[:, :-1])
