import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from inducing.experiments import linear


def test_the_data_are_the_papers():
    x, y = linear.linear_data(4000, seed=0)
    assert x.shape == (4000, 5)
    assert y.shape == (4000, 1)
    assert abs(x.var() - 1) < 0.05
    residual = y - x @ torch.linalg.lstsq(x, y).solution
    assert abs((residual.var().item() / 0.1 - 1) / math.sqrt(2 / 4000)) < 4


def test_the_evidence_is_that_of_the_dense_normal():
    x, y = (values.double() for values in linear.linear_data(50, seed=0))
    covariance = x @ x.mT / 5 + 0.1 * torch.eye(50, dtype=torch.float64)
    dense = MultivariateNormal(torch.zeros(50, dtype=torch.float64), covariance).log_prob(y[:, 0])
    assert linear.log_evidence(x, y) == pytest.approx(dense.item(), rel=1e-10)


@pytest.mark.slow
def test_global_inducing_reaches_the_evidence_of_a_shallow_network():
    metrics = linear.run(
        linear.Config(posterior="global", width=50, depth=1, num_steps=3000, schedule="cosine"), progress=False
    )
    assert metrics["evidence_per_datapoint"] - 0.02 < metrics["elbo_per_datapoint"] < metrics["evidence_per_datapoint"]
