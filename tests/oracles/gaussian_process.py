"""Gaussian processes computed densely, output by output, with torch.distributions: the known answers."""

import torch
from torch.distributions import MultivariateNormal


def covariance(layer, x, y=None):
    """The kernel matrix of a layer, with its jitter on the diagonal where x meets itself."""
    values = tuple(value.detach() for value in layer.kernel())
    if y is not None:
        return layer.kernel_spec.matrix(values, x[None], y[None])[0]
    matrix = layer.kernel_spec.matrix(values, x[None], x[None])[0]
    return matrix + layer.jitter * matrix.diagonal().median() * torch.eye(len(x), dtype=x.dtype)


def precision_of(root, output):
    """Lambda = LL' of one output, from a diagonal or a full root, shared or not."""
    each = root[0] if len(root) == 1 else root[output]
    return torch.diag(each**2) if each.ndim == 1 else each @ each.mT


def posterior(prior_mean, prior_covariance, v, precision):
    """Q(u) proportional to N(v; u, Lambda^-1) N(u; m, K), by inverting everything."""
    inverse = torch.linalg.inv(prior_covariance)
    spread = torch.linalg.inv(inverse + precision)
    return MultivariateNormal(
        spread @ (inverse @ prior_mean + precision @ v), covariance_matrix=(spread + spread.mT) / 2
    )


def conditional(prior_mean, at_inducing, cross, at_x, u):
    """Moments of f | u, with K^-1."""
    gain = torch.linalg.solve(at_inducing, cross).mT
    return prior_mean + gain @ u, at_x - gain @ cross
