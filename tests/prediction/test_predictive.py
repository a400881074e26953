import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Categorical, MixtureSameFamily, Normal

import inducing
from inducing.prediction.predictive import Predictive

OUTPUTS = torch.randn(50, 6, 2).double()
Y = torch.randn(6, 2).double()


def gaussian():
    return Predictive(OUTPUTS, inducing.Gaussian([0.3, 0.5], learn_variance=False).double())


def mixture():
    """The same mixture by torch.distributions, output by output."""
    weights = Categorical(torch.ones(6, 2, 50).double())
    std = torch.tensor([0.3, 0.5]).double().sqrt()
    return MixtureSameFamily(weights, Normal(OUTPUTS.permute(1, 2, 0), std[:, None].expand(2, 50)), validate_args=False)


def test_moments_are_those_of_the_mixture():
    predictive = gaussian()
    torch.testing.assert_close(predictive.mean, mixture().mean)
    torch.testing.assert_close(predictive.variance, mixture().variance, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(predictive.epistemic, OUTPUTS.var(0, correction=0))
    torch.testing.assert_close(
        predictive.aleatoric, torch.tensor([0.3, 0.5]).double().expand(6, 2), rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(predictive.stddev**2, predictive.variance)


def test_the_density_is_that_of_the_joint_mixture():
    """Both outputs belong to one draw: log-sum-exp of their sum, not the sum of the marginals."""
    components = Normal(OUTPUTS, gaussian().likelihood.noise_variance.sqrt()).log_prob(Y).sum(-1)
    torch.testing.assert_close(gaussian().log_prob(Y), components.logsumexp(0) - math.log(50))


def test_the_density_integrates_to_one():
    predictive = Predictive(
        torch.randn(20, 4001, 1).double()[:, :1].expand(-1, 4001, -1), inducing.Gaussian(0.3).double()
    )
    grid = torch.linspace(-10, 10, 4001).double()[:, None]
    total = torch.trapezoid(predictive.unstandardise(0.5, 1.5).log_prob(grid).exp(), grid[:, 0])
    torch.testing.assert_close(total.item(), 1.0, rtol=1e-6, atol=0)


@pytest.mark.parametrize("q", [0.01, 0.05, 0.5, 0.95, 0.999])
def test_quantiles_invert_the_distribution_function(q):
    torch.testing.assert_close(
        mixture().cdf(gaussian().quantile(q)), torch.full((6, 2), q).double(), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("q", [1e-12, 1e-20, 1e-300, 1 - 1e-12])
def test_far_tails_keep_their_digits(q):
    """Against the normal's own quantile, where all components are the same."""
    predictive = Predictive(torch.ones(5, 1, 1), inducing.Gaussian(0.25))
    exact = torch.special.ndtri(torch.tensor(q, dtype=torch.float64)) / 2 + 1
    torch.testing.assert_close(predictive.quantile(q)[0, 0].double(), exact, rtol=1e-5, atol=0)
    mixture = Predictive(torch.tensor([-1.0, 1.0]).double()[:, None, None], inducing.Gaussian(1.0).double())
    # q of an equal mixture is nearly 2q of the outer component
    outer = torch.special.ndtri(torch.tensor(2 * min(q, 1 - q), dtype=torch.float64)) - 1
    expected = outer if q < 0.5 else -outer
    torch.testing.assert_close(mixture.quantile(q)[0, 0], expected, rtol=1e-4, atol=0)


def test_several_quantiles_at_once():
    levels = gaussian().quantile([0.1, 0.5, 0.9])
    assert levels.shape == (3, 6, 2)
    assert (levels.diff(dim=0) > 0).all()
    torch.testing.assert_close(gaussian().quantile(torch.tensor([0.1, 0.5, 0.9])), levels, rtol=1e-6, atol=1e-6)
    assert gaussian().quantile(np.float32(0.5)).shape == (6, 2)


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, 2.0, float("nan"), []])
def test_quantiles_are_checked(q):
    with pytest.raises(ValueError, match="between 0 and 1"):
        gaussian().quantile(q)


def test_samples_have_the_total_variance():
    outputs = torch.randn(20_000, 1, 1)
    predictive = Predictive(outputs, inducing.Gaussian(0.5))
    samples = predictive.samples
    assert samples.shape == outputs.shape
    assert abs((samples.var() / predictive.variance.item() - 1) / (2 / 20_000) ** 0.5) < 4
    assert torch.equal(samples, predictive.samples)


def test_the_original_scale():
    location, scale = 5.0, 3.0
    standard, original = gaussian(), gaussian().unstandardise(location, scale)
    torch.testing.assert_close(original.mean, location + scale * standard.mean)
    torch.testing.assert_close(original.variance, scale**2 * standard.variance)
    torch.testing.assert_close(original.epistemic + original.aleatoric, original.variance)
    torch.testing.assert_close(original.quantile(0.3), location + scale * standard.quantile(0.3))
    torch.testing.assert_close(original.samples, location + scale * standard.samples)
    # p(y) dy: a factor of 1/scale for each of two outputs
    expected = standard.log_prob(Y) - 2 * math.log(scale)
    torch.testing.assert_close(original.log_prob(location + scale * Y), expected)
    twice = standard.unstandardise(1.0, 2.0).unstandardise(-3.0, 0.5)
    torch.testing.assert_close(twice.mean, -3.0 + 0.5 * (1.0 + 2.0 * standard.mean))
    per_output = gaussian().unstandardise(torch.zeros(2).double(), torch.tensor([2.0, 4.0]).double())
    shrunk = per_output.log_prob(Y * torch.tensor([2.0, 4.0]).double())
    torch.testing.assert_close(shrunk, standard.log_prob(Y) - math.log(8))


@pytest.mark.parametrize("scale", [-1.0, 0.0, [1.0, -1.0], [1.0, 1.0, 1.0]])
def test_impossible_scales_are_refused(scale):
    with pytest.raises(ValueError, match="must be positive"):
        gaussian().unstandardise(0.0, scale)


@pytest.mark.parametrize("kind", [np.array, torch.tensor, list])
def test_scales_come_as_people_have_them(kind):
    original = gaussian().unstandardise(kind([1.0, 2.0]), kind([3.0, 4.0]))
    expected = gaussian().mean * torch.tensor([3.0, 4.0]).double() + torch.tensor([1.0, 2.0]).double()
    torch.testing.assert_close(original.mean, expected)


def test_classes():
    outputs = torch.randn(50, 6, 4)
    predictive, labels = Predictive(outputs, inducing.Categorical()), torch.arange(6) % 4
    torch.testing.assert_close(predictive.mean, outputs.softmax(-1).mean(0))
    # total variance of the one-hot vector under the mixture
    torch.testing.assert_close(predictive.variance, predictive.mean * (1 - predictive.mean))
    torch.testing.assert_close(predictive.log_prob(labels), predictive.mean[torch.arange(6), labels].log())
    assert predictive.samples.shape == (50, 6)
    with pytest.raises(TypeError, match="quantiles"):
        predictive.quantile(0.5)
    with pytest.raises(TypeError, match="cannot be rescaled"):
        predictive.unstandardise(0.0, 2.0)


@pytest.mark.parametrize("q", [0.001, 0.3, 0.5, 0.95])
@pytest.mark.parametrize("concentration", [None, 2.0])
def test_quantiles_of_counts_are_the_smallest_integers_that_reach_the_level(q, concentration):
    outputs, counts = 1 + torch.randn(23, 5, 2), np.arange(1000.0)
    mean = outputs.double().exp().numpy()[..., None]
    if concentration is None:
        likelihood, law = inducing.Poisson(), stats.poisson(mean)
    else:
        likelihood = inducing.NegativeBinomial(concentration)
        r = likelihood.concentration.item()
        law = stats.nbinom(r, r / (r + mean))
    found = Predictive(outputs, likelihood).quantile([q, 0.9])
    assert found.dtype == torch.float32
    np.testing.assert_array_equal(found[0].numpy(), (law.cdf(counts).mean(0) >= q).argmax(-1))
    assert found.shape == (2, 5, 2)


def test_counts():
    outputs, y = torch.randn(50, 6, 2), torch.arange(12).reshape(6, 2) % 4
    predictive = Predictive(outputs, inducing.Poisson())
    law = stats.poisson(outputs.double().exp().numpy())
    torch.testing.assert_close(predictive.mean, outputs.exp().mean(0))
    # V[y] = E[rate] + V[rate]
    torch.testing.assert_close(predictive.variance, outputs.exp().mean(0) + outputs.exp().var(0, correction=0))
    expected = np.log(law.pmf(y.numpy()).prod(-1).mean(0))
    for kind in (y, y.float(), y.int()):
        np.testing.assert_allclose(predictive.log_prob(kind).numpy(), expected, rtol=1e-4)
    assert predictive.samples.shape == (50, 6, 2)
    assert torch.equal(predictive.samples, predictive.samples.floor())


def test_yes_and_no():
    outputs, y = torch.randn(50, 6, 2), torch.arange(12).reshape(6, 2) % 2 == 0
    predictive = Predictive(outputs, inducing.Bernoulli())
    torch.testing.assert_close(predictive.mean, torch.sigmoid(outputs).mean(0))
    torch.testing.assert_close(predictive.variance, predictive.mean * (1 - predictive.mean))
    of_each = torch.where(y, torch.sigmoid(outputs), torch.sigmoid(-outputs))
    torch.testing.assert_close(predictive.log_prob(y), of_each.prod(-1).mean(0).log())
    torch.testing.assert_close(predictive.quantile(0.4), (predictive.mean > 0.6).float())


@pytest.mark.parametrize("make", [inducing.Bernoulli, inducing.Poisson, inducing.NegativeBinomial])
def test_integers_have_no_other_scale(make):
    with pytest.raises(TypeError, match=f"targets of a {make.__name__} likelihood cannot be rescaled"):
        Predictive(torch.zeros(5, 3, 1), make()).unstandardise(0.0, 2.0)


def heteroscedastic():
    """The same mixture by torch.distributions, for two targets, on a scale of its own for each."""
    outputs, location, scale = (
        torch.randn(50, 6, 4).double(),
        torch.tensor([1.0, -2.0]).double(),
        torch.tensor([3.0, 0.5]).double(),
    )
    likelihood = inducing.HeteroscedasticGaussian(0.2, learn_variance=False).double()
    std = (likelihood.log_noise_variance(outputs[..., 2:]) / 2).exp()
    normal = Normal(location + scale * outputs[..., :2], scale * std)
    moved = Normal(normal.loc.permute(1, 2, 0), normal.scale.permute(1, 2, 0))
    mixture = MixtureSameFamily(Categorical(torch.ones(6, 2, 50).double()), moved, validate_args=False)
    return Predictive(outputs, likelihood).unstandardise(location, scale), normal, mixture


def test_noise_that_depends_on_the_inputs():
    predictive, normal, mixture = heteroscedastic()
    torch.testing.assert_close(predictive.mean, mixture.mean)
    torch.testing.assert_close(predictive.variance, mixture.variance)
    torch.testing.assert_close(predictive.epistemic, normal.mean.var(0, correction=0))
    torch.testing.assert_close(predictive.aleatoric, normal.variance.mean(0))
    expected = normal.log_prob(Y).sum(-1).logsumexp(0) - math.log(50)
    torch.testing.assert_close(predictive.log_prob(Y), expected)
    levels = predictive.quantile([0.05, 0.8])
    assert levels.shape == (2, 6, 2)
    torch.testing.assert_close(mixture.cdf(levels[1]), torch.full((6, 2), 0.8, dtype=torch.float64))
    assert predictive.samples.shape == (50, 6, 2)
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        predictive.unstandardise(0.0, [1.0, 1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"y must have shape \(B, 2\)"):
        predictive.log_prob(torch.zeros(6, 4).double())


@pytest.mark.parametrize("q", [1e-9, 0.05, 0.5, 0.999])
def test_heavy_tails(q):
    likelihood = inducing.StudentT([0.3, 0.5], 3.0).double().requires_grad_(False)
    predictive = Predictive(OUTPUTS, likelihood).unstandardise(1.0, 2.0)
    freedom = likelihood.degrees_of_freedom.item()
    law = stats.t(freedom, 1 + 2 * OUTPUTS.numpy(), 2 * likelihood.scale.numpy())
    np.testing.assert_allclose(law.cdf(predictive.quantile(q).numpy()).mean(0), q, rtol=1e-7)
    np.testing.assert_allclose(predictive.log_prob(Y).numpy(), np.log(law.pdf(Y.numpy()).prod(-1).mean(0)))
    np.testing.assert_allclose(predictive.aleatoric.numpy(), law.var().mean(0))


def test_predictions_do_not_depend_on_batches_and_seeds_decide():
    network, x = inducing.models.mlp(3, 2, num_inducing=5), torch.randn(11, 3)
    likelihood = inducing.Gaussian()
    whole = inducing.predict(network, likelihood, x, 20)
    torch.testing.assert_close(inducing.predict(network, likelihood, x, 20, batch_size=4).outputs, whole.outputs)
    assert torch.equal(inducing.predict(network, likelihood, x, 20).outputs, whole.outputs)
    assert not torch.equal(inducing.predict(network, likelihood, x, 20, seed=1).outputs, whole.outputs)


def test_a_prediction_is_a_value():
    network, likelihood = inducing.models.mlp(3, 1, num_inducing=5), inducing.Gaussian(0.5)
    predictive = inducing.predict(network, likelihood, torch.randn(4, 3))
    before = predictive.variance
    with torch.no_grad():
        likelihood.scaled_log_variance.add_(1.0)
    assert torch.equal(predictive.variance, before)
    assert not predictive.variance.requires_grad


def test_bad_targets_are_refused():
    with pytest.raises(ValueError, match="y must have 6 rows, one for each prediction, got 5"):
        gaussian().log_prob(Y[:5])
    with pytest.raises(ValueError, match=r"y must have shape \(B, 2\)"):
        gaussian().log_prob(Y[:, :1])


def test_no_rows_give_no_predictions():
    network = inducing.models.mlp(3, 1, num_inducing=5)
    assert inducing.predict(network, inducing.Gaussian(), torch.zeros(0, 3)).mean.shape == (0, 1)


def test_batch_size_is_checked():
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        inducing.predict(
            inducing.models.mlp(3, 1, num_inducing=5), inducing.Gaussian(), torch.zeros(2, 3), batch_size=0
        )


def test_swapped_arguments_are_refused():
    network = inducing.models.mlp(1, 1, [4], num_inducing=4)
    with pytest.raises(TypeError, match=r"order is predict\(network, likelihood, x\), got predict\(Gaussian, Network"):
        inducing.predict(inducing.Gaussian(), network, torch.zeros(3, 1))


def test_targets_may_be_arrays():
    outputs = torch.randn(4, 6, 1, dtype=torch.float64)
    predictive, y = inducing.Predictive(outputs, inducing.Gaussian().double()), np.arange(6.0)
    y.flags.writeable = False
    expected = predictive.log_prob(torch.arange(6.0, dtype=torch.float64)[:, None])
    for given in (y, y[:, None], y.tolist()):
        torch.testing.assert_close(predictive.log_prob(given), expected, rtol=0, atol=0)
    with pytest.raises(ValueError, match="6 rows, one for each prediction, got 5"):
        predictive.log_prob(y[:5])
    labels = np.array([0, 2, 1, 1, 0, 2])
    classes = Predictive(torch.randn(4, 6, 3), inducing.Categorical())
    assert classes.log_prob(labels).shape == (6,)


def test_arrays_may_be_reversed():
    predictive = inducing.Predictive(torch.randn(4, 3, 2).double(), inducing.Gaussian().double())
    y, levels = np.random.default_rng(0).normal(size=(3, 2)), np.array([0.1, 0.5, 0.9])
    forward = predictive.unstandardise(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    backward = predictive.unstandardise(np.array([2.0, 1.0])[::-1], np.array([4.0, 3.0])[::-1])
    torch.testing.assert_close(forward.mean, backward.mean)
    torch.testing.assert_close(forward.log_prob(np.flip(y, 0)), forward.log_prob(np.flip(y, 0).copy()))
    torch.testing.assert_close(forward.quantile(levels[::-1]), forward.quantile(levels).flip(0))


def test_it_prints_in_one_line():
    assert repr(gaussian()) == "Predictive(6 rows, 50 posterior draws, Gaussian likelihood)"
