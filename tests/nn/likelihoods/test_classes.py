import pytest
import torch
from scipy import stats
from torch.distributions import Bernoulli, Categorical

import inducing

OUTPUTS = torch.randn(5, 7, 3, generator=torch.Generator().manual_seed(0))
YES = torch.arange(21).reshape(7, 3) % 2


def test_categorical_is_that_of_torch_distributions():
    likelihood, labels = inducing.Categorical(), torch.arange(7) % 3
    expected = Categorical(logits=OUTPUTS)
    torch.testing.assert_close(likelihood.log_prob(OUTPUTS, labels), expected.log_prob(labels))
    torch.testing.assert_close(likelihood.mean(OUTPUTS), expected.probs)
    torch.testing.assert_close(likelihood.variance(OUTPUTS), expected.probs * (1 - expected.probs))
    sample = likelihood.sample(OUTPUTS[:1, :1].expand(100, 100, 3), torch.Generator().manual_seed(0))
    share = (sample == 1).float().mean()
    probability = expected.probs[0, 0, 1]
    assert abs((share - probability) / (probability * (1 - probability) / 10_000).sqrt()) < 4


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (torch.tensor([0, 3]), ValueError, r"labels from 0 to 3"),
        (torch.tensor([-1, 0]), ValueError, "labels from -1 to 0"),
        (torch.tensor([0.0, 1.0]), TypeError, r"integer class labels, got torch\.float32; use y\.long\(\)"),
        (torch.tensor([[0], [1]]), ValueError, r"use y\[:, 0\]"),
        (torch.eye(3).long(), ValueError, r"argmax"),
    ],
)
def test_categorical_refuses_bad_targets(y, error, message):
    with pytest.raises(error, match=message):
        inducing.Categorical().check_targets(y, (3,))


@pytest.mark.parametrize("method", ["log_cdf", "log_survival", "icdf"])
def test_classes_have_no_quantiles(method):
    with pytest.raises(TypeError, match="classes have no order"):
        getattr(inducing.Categorical(), method)(OUTPUTS, 0.5)


def test_bernoulli_is_that_of_torch_distributions():
    likelihood, expected = inducing.Bernoulli(), Bernoulli(logits=OUTPUTS)
    torch.testing.assert_close(likelihood.log_prob(OUTPUTS, YES), expected.log_prob(YES.float()).sum(-1))
    torch.testing.assert_close(likelihood.mean(OUTPUTS), expected.mean)
    torch.testing.assert_close(likelihood.variance(OUTPUTS), expected.variance)


@pytest.mark.parametrize("y", [-1.0, -0.5, 0.0, 0.5, 1.0, 3.0])
def test_bernoulli_distribution_function_is_that_of_scipy(y):
    outputs = OUTPUTS.double()
    law = stats.bernoulli(torch.sigmoid(outputs).numpy())
    at = torch.full((7, 3), y).double()
    torch.testing.assert_close(inducing.Bernoulli().log_cdf(outputs, at).exp().numpy(), law.cdf(y))
    torch.testing.assert_close(inducing.Bernoulli().log_survival(outputs, at).exp().numpy(), law.sf(y))


def test_bernoulli_quantiles_are_those_of_scipy_and_ties_go_down():
    outputs = OUTPUTS.double()
    for level in (0.01, 0.3, 0.7, 0.99):
        expected = stats.bernoulli(torch.sigmoid(outputs).numpy()).ppf(level)
        torch.testing.assert_close(inducing.Bernoulli().icdf(outputs, level).numpy(), expected)
    # P(Y <= 0) = 0.5 reaches 0.5
    assert inducing.Bernoulli().icdf(torch.zeros(1, 1, 1), 0.5).item() == 0


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
def test_bernoulli_accepts_targets_of_all_dtypes(dtype):
    y = inducing.Bernoulli().check_targets(YES.to(dtype), (3,))
    expected = inducing.Bernoulli().log_prob(OUTPUTS, YES.float())
    torch.testing.assert_close(inducing.Bernoulli().log_prob(OUTPUTS, y), expected)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (
            torch.tensor([[-1.0], [1.0]]),
            ValueError,
            r"0 or 1, or False or True, but row 0 has -1; use \(y \+ 1\) / 2",
        ),
        (torch.tensor([[1], [2]]), ValueError, r"row 1 has 2; .*Categorical\(\) for more classes"),
        (torch.tensor([[0.5]]), ValueError, "row 0 has 0.5"),
        (torch.tensor([0, 1]), ValueError, r"y must have shape \(B, 1\), got \(2,\); use y\[:, None\]"),
        (torch.tensor([[float("nan")]]), ValueError, "y contains NaN or inf in 1 of 1 rows"),
        (torch.zeros(1, 1, dtype=torch.complex64), TypeError, "0 or 1, or False or True, got torch.complex64"),
    ],
)
def test_bernoulli_refuses_bad_targets(y, error, message):
    with pytest.raises(error, match=message):
        inducing.Bernoulli().check_targets(y, (1,))
