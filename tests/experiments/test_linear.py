import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from inducing.experiments import linear


def test_the_data_are_the_papers():
    data = linear.linear_data(4000, 100, seed=0)
    assert data.x_train.shape == (4000, 5)
    assert data.y_test.shape == (100, 1)
    assert abs(data.x_train.var() - 1) < 0.05
    weights = torch.linalg.lstsq(data.x_train, data.y_train).solution
    residual = data.y_train - data.x_train @ weights
    assert abs((residual.var().item() / 0.1 - 1) / math.sqrt(2 / 4000)) < 4


def test_the_evidence_is_that_of_the_dense_normal():
    data = linear.linear_data(50, 1, seed=0)
    x = data.x_train.double()
    covariance = x @ x.mT / 5 + 0.1 * torch.eye(50, dtype=torch.float64)
    dense = MultivariateNormal(torch.zeros(50, dtype=torch.float64), covariance).log_prob(data.y_train.double()[:, 0])
    assert linear.log_evidence(data.x_train, data.y_train) == pytest.approx(dense.item(), rel=1e-10)


@pytest.mark.slow
def test_global_inducing_reaches_the_evidence_of_a_shallow_network():
    metrics = linear.run(
        linear.Config(posterior="global", width=50, depth=1, num_steps=3000, schedule="cosine"), progress=False
    )
    assert metrics["evidence_per_datapoint"] - 0.02 < metrics["elbo_per_datapoint"] < metrics["evidence_per_datapoint"]
