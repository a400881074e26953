"""A short fit with each likelihood predicts new rows better than the best constant of the same family."""

import copy

import pytest
import torch

import inducing

NUM_TRAIN, NUM_TEST = 150, 150


def data(kind):
    generator = torch.Generator().manual_seed(3)
    x = 4 * torch.rand(NUM_TRAIN + NUM_TEST, 1, generator=generator) - 2
    f = torch.sin(2 * x)
    noise = torch.randn(x.shape, generator=generator)
    if kind == "binary":
        return x, torch.bernoulli(torch.sigmoid(4 * f), generator=generator).bool()
    if kind == "counts":
        return x, torch.poisson((1 + f).exp(), generator=generator).long()
    if kind == "overdispersed":
        gamma = torch._standard_gamma(torch.full(x.shape, 3.0), generator=generator) / 3
        return x, torch.poisson(gamma * (2 + 1.5 * f).exp(), generator=generator).long()
    if kind == "outliers":
        return x, f + 0.1 * noise / torch.rand(x.shape, generator=generator).sqrt()
    return x, f + (x - 1).exp() * 0.3 * noise


CASES = [
    (inducing.Bernoulli, "binary", 1),
    (inducing.Poisson, "counts", 1),
    (inducing.NegativeBinomial, "overdispersed", 1),
    (inducing.StudentT, "outliers", 1),
    (inducing.HeteroscedasticGaussian, "growing noise", 2),
    (inducing.HeteroscedasticStudentT, "growing noise", 2),
]


def best_constant(likelihood, num_outputs, y):
    """Held-out log-likelihood of the constant outputs and parameters that fit the training targets best."""
    likelihood = copy.deepcopy(likelihood)
    constant = torch.zeros(num_outputs, requires_grad=True)
    optimizer = torch.optim.Adam([constant, *likelihood.parameters()], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        (-likelihood.log_prob(constant.expand(1, NUM_TRAIN, num_outputs), y[:NUM_TRAIN]).mean()).backward()
        optimizer.step()
    return likelihood.log_prob(constant.expand(1, NUM_TEST, num_outputs), y[NUM_TRAIN:]).mean().item()


@pytest.mark.parametrize(("make", "kind", "num_outputs"), CASES)
def test_held_out_log_likelihood(make, kind, num_outputs):
    x, y = data(kind)
    likelihood = make()
    baseline = best_constant(likelihood, num_outputs, y)
    # targets are no first values for logits and log-means; where they are for means, noise starts at zero
    first = torch.cat([y[:20], torch.zeros(20, num_outputs - 1)], 1) if y.is_floating_point() else None
    network = inducing.models.mlp(1, num_outputs, [20], prior="scale", inducing_points=x[:20], inducing_targets=first)
    train = (x[:NUM_TRAIN], y[:NUM_TRAIN])
    inducing.fit(network, likelihood, train, num_steps=200, num_samples=4, learning_rate=3e-2, progress=False)
    prediction = inducing.predict(network, likelihood, x[NUM_TRAIN:], num_samples=50)
    fitted = inducing.metrics.log_likelihood(prediction, y[NUM_TRAIN:])
    assert fitted > baseline + 0.1
