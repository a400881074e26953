"""Bayesian linear regression computed densely, output by output, with torch.distributions: the known answers."""

import torch
from torch.distributions import MultivariateNormal


def dense_precision(root, output):
    """Lambda = LL' of one output, from a diagonal or a full root, shared or not."""
    each = root[0] if len(root) == 1 else root[output]
    return torch.diag(each**2) if each.ndim == 1 else each @ each.mT


def posterior(x, v, root, prior_precision, output):
    """Q(w) of one output, by the paper's Eq. 11."""
    precision = dense_precision(root, output)
    covariance = torch.linalg.inv(prior_precision + x.mT @ precision @ x)
    covariance = (covariance + covariance.mT) / 2
    return MultivariateNormal(covariance @ x.mT @ precision @ v[:, output], covariance_matrix=covariance)


def prior(prior_precision):
    """P(w)."""
    return MultivariateNormal(
        torch.zeros(len(prior_precision), dtype=prior_precision.dtype), precision_matrix=prior_precision
    )


def log_evidence(x, y, prior_precision, noise_variance):
    """log P(y), all outputs together."""
    covariance = x @ torch.linalg.inv(prior_precision) @ x.mT + noise_variance * torch.eye(len(x), dtype=x.dtype)
    marginal = MultivariateNormal(torch.zeros(len(x), dtype=x.dtype), covariance_matrix=covariance)
    return marginal.log_prob(y.mT).sum()
