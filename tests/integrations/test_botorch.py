"""The BoTorch model: joint posteriors, noise, transforms, acquisition functions, Thompson sampling, fantasies."""

import math
import warnings

import numpy as np
import pytest
import torch

import inducing

with warnings.catch_warnings():
    # linear_operator uses torch.jit.script
    warnings.simplefilter("ignore", DeprecationWarning)
    from botorch.acquisition import qUpperConfidenceBound
    from botorch.acquisition.knowledge_gradient import qKnowledgeGradient
    from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
    from botorch.acquisition.objective import ScalarizedPosteriorTransform
    from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
    from botorch.models.transforms.input import Normalize
    from botorch.models.transforms.outcome import Log, Standardize
    from botorch.optim import optimize_acqf
    from botorch.sampling.get_sampler import get_sampler
    from botorch.sampling.normal import SobolQMCNormalSampler
    from botorch.sampling.pathwise import draw_matheron_paths

    from inducing.integrations.botorch import InducingModel

X = torch.rand(12, 2, generator=torch.Generator().manual_seed(0)).double()
Y = (X - 0.4).square().sum(1, keepdim=True).neg()
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()
NOISE = 0.04


def bnn(outputs=1):
    # smooth, since line searches may stop at the kinks of ReLUs
    return inducing.models.mlp(2, outputs, [8], activation=torch.nn.Tanh, inducing_points=X)


def deep_gp(outputs=1):
    return inducing.models.deep_gp(2, outputs, 2, inducing_points=X)


def model(network=None, samples=16, **settings):
    return InducingModel(network or bnn(), inducing.Gaussian(NOISE).double(), samples, **settings)


def exact():
    """One layer, fitted exactly to the first rows."""
    settings = {"inducing_points": X[:6], "inducing_targets": Y[:6], "learn_inducing_locations": False}
    return inducing.Network([inducing.Linear(2, 1, posterior="optimal")], **settings)


@pytest.mark.parametrize("network", [bnn, deep_gp])
def test_the_posterior_is_that_of_the_functions(network):
    network, points = network(2), torch.rand(4, 3, 2).double().requires_grad_()
    surrogate = model(network, seed=3)
    posterior = surrogate.posterior(points)
    expected = network.sample_functions(16, seed=3)(points.reshape(12, 2)).reshape(16, 4, 3, 2).transpose(0, 1)
    torch.testing.assert_close(posterior.values, expected)
    torch.testing.assert_close(posterior.mean, expected.mean(1))
    torch.testing.assert_close(posterior.variance, expected.var(1, correction=0))
    assert (surrogate.num_outputs, surrogate.batch_shape) == (2, torch.Size())
    # one sample is one function at all q points, for all batches
    sampler = get_sampler(posterior, torch.Size([16]), seed=0)
    assert isinstance(sampler, SobolQMCNormalSampler)
    drawn = sampler(posterior)
    which = (drawn[:, :1, :1, :1] - expected[None, 0, :, 0, 0][..., None, None]).abs().flatten(1).argmin(1)
    torch.testing.assert_close(drawn, expected.transpose(0, 1)[which])
    assert len(set(which.tolist())) > 12
    (gradient,) = torch.autograd.grad(drawn.sum(), points)
    assert (gradient != 0).all()


def test_observation_noise():
    surrogate, points = model(), torch.rand(3, 2, 2).double().requires_grad_()
    without, noisy = (surrogate.posterior(points, observation_noise=given) for given in (False, True))
    torch.testing.assert_close(noisy.mean, without.mean)
    torch.testing.assert_close(noisy.variance, without.variance + NOISE)
    assert not torch.equal(noisy.values, without.values)
    torch.testing.assert_close(noisy.values, surrogate.posterior(points, observation_noise=True).values)
    given = torch.tensor([[0.1], [0.2]]).double()
    torch.testing.assert_close(surrogate.posterior(points, observation_noise=given).variance, without.variance + given)
    for network in (bnn(2), deep_gp(2)):
        updated = InducingModel(network, inducing.HeteroscedasticGaussian().double(), 8).condition_on_observations(X, Y)
        assert updated.posterior(X).mean.shape == Y.shape
    depends = InducingModel(bnn(2), inducing.HeteroscedasticGaussian().double(), 8)
    posterior = depends.posterior(points, observation_noise=True)
    assert posterior.mean.shape == (3, 2, 1)
    (gradient,) = torch.autograd.grad((posterior.values - depends.posterior(points).values).square().sum(), points)
    assert (gradient != 0).any()


def test_noise_on_a_log_scale_raises_the_mean():
    surrogate = InducingModel(bnn(2), inducing.Gaussian(0.5).double(), 20_000, outcome_transform=Log())
    points = torch.rand(2, 2).double()
    without, noisy = (surrogate.posterior(points, observation_noise=given) for given in (False, True))
    # E exp(f + e) = E exp(f) exp(v / 2), and E exp(2 f + 2 e) = E exp(2 f) exp(2 v)
    torch.testing.assert_close(noisy.mean, math.exp(0.25) * without.mean, rtol=0.05, atol=0)
    second = math.e * without.values.square().mean(-3)
    torch.testing.assert_close(noisy.variance, second - noisy.mean.square(), rtol=0.2, atol=0)


def test_transforms_and_subsets():
    network, points = bnn(2), 10 * torch.rand(5, 2).double()
    standardize = Standardize(2)
    standardize(torch.tensor([[1.0, 10.0], [3.0, 20.0]]).double())
    standardize.eval()
    transforms = {"input_transform": Normalize(2, bounds=10 * BOUNDS), "outcome_transform": standardize}
    surrogate = model(network, **transforms)
    values = network.sample_functions(16)(points / 10)
    expected = standardize.means + standardize.stdvs * values
    torch.testing.assert_close(surrogate.posterior(points).values, expected)
    second = surrogate.subset_output([1])
    assert second.num_outputs == 1
    torch.testing.assert_close(second.posterior(points).values, expected[..., 1:])
    torch.testing.assert_close(surrogate.posterior(points, output_indices=[1]).values, expected[..., 1:])
    weights = ScalarizedPosteriorTransform(torch.tensor([1.0, 2.0]).double())
    mean = surrogate.posterior(points, posterior_transform=weights).mean
    torch.testing.assert_close(mean[..., 0], expected.mean(0) @ torch.tensor([1.0, 2.0]).double())


def test_an_estimator():
    estimator = inducing.BNNRegressor(hidden=[5], max_steps=5, n_samples=16, random_state=0)
    estimator.fit(5 + X.numpy(), 100 * Y[:, 0].numpy())
    surrogate = InducingModel.from_estimator(estimator, 16, estimator.seed_)
    posterior = surrogate.posterior(5 + X, observation_noise=True)
    mean, std = estimator.predict(5 + X.numpy(), return_std=True)
    np.testing.assert_allclose(posterior.mean[:, 0], mean)
    np.testing.assert_allclose(posterior.variance.sqrt()[:, 0], std, rtol=0.2)
    updated = surrogate.condition_on_observations(
        5 + X[:1], torch.tensor([[1000.0]]).double(), torch.tensor([[1e-9]]).double()
    )
    torch.testing.assert_close(updated.posterior(5 + X[:1]).mean, torch.tensor([[1000.0]]).double())


ACQUISITIONS = {
    "noisy EI": lambda surrogate: qLogNoisyExpectedImprovement(surrogate, X),
    "EI": lambda surrogate: qLogExpectedImprovement(surrogate, Y.max()),
    "UCB": lambda surrogate: qUpperConfidenceBound(surrogate, 0.1),
    "Thompson": PathwiseThompsonSampling,
    "knowledge gradient": lambda surrogate: qKnowledgeGradient(surrogate, num_fantasies=3),
}


@pytest.mark.parametrize("name", ACQUISITIONS)
@pytest.mark.parametrize("network", [bnn, deep_gp])
def test_acquisition_functions(name, network):
    acquisition = ACQUISITIONS[name](model(network()))
    options = {"maxiter": 2}
    points, value = optimize_acqf(acquisition, BOUNDS, q=2, num_restarts=2, raw_samples=4, options=options)
    assert points.shape == (2, 2)
    assert value.isfinite()


def test_thompson_sampling_maximises_whole_functions():
    acquisition = PathwiseThompsonSampling(model(deep_gp()))
    points, _ = optimize_acqf(acquisition, BOUNDS, q=3, num_restarts=8, raw_samples=32)
    grid = torch.cartesian_prod(*[torch.linspace(0, 1, 21).double()] * 2)
    functions = acquisition.samples
    best = functions(points[:, None])[:, 0, 0]
    assert (best > functions(grid)[..., 0].amax(1) - 0.05).all()
    assert len({tuple(point) for point in points.round(decimals=3).tolist()}) == 3


@pytest.mark.parametrize("network", [bnn, deep_gp])
def test_gradients_of_fantasies(network):
    acquisition = qKnowledgeGradient(model(network(), 8), num_fantasies=2)
    points = torch.rand(1, 4, 2, generator=torch.Generator().manual_seed(3)).double().requires_grad_()
    assert torch.autograd.gradcheck(acquisition, points)


@pytest.mark.parametrize("outputs", [1, 2])
def test_paths_are_whole_functions(outputs):
    surrogate = model(deep_gp(outputs))
    paths = draw_matheron_paths(surrogate, sample_shape=torch.Size([3]))
    points = torch.rand(5, 2).double()
    drawn = paths.model.network.sample_functions(3, paths.model.seed)(points)
    found = paths(points) if outputs == 1 else paths(points[None])
    torch.testing.assert_close(found, drawn[..., 0] if outputs == 1 else drawn.mT)
    each = torch.stack([points, points + 1, points + 2])
    found = paths(each[None]) if outputs == 1 else paths(each[None, :, None])
    torch.testing.assert_close(found[0, 0], drawn[0, ..., 0] if outputs == 1 else drawn[0].mT)
    assert not torch.equal(draw_matheron_paths(surrogate, sample_shape=torch.Size([3])).model(points), drawn)


def test_conditioning_one_layer_equals_fitting_to_all_rows():
    settings = {"inducing_points": X, "inducing_targets": Y, "learn_inducing_locations": False}
    whole = model(inducing.Network([inducing.Linear(2, 1, posterior="optimal")], **settings), 20_000)
    updated = model(exact(), 20_000).condition_on_observations(X[6:9], Y[6:9]).condition_on_observations(X[9:], Y[9:])
    expected, found = whole.posterior(BOUNDS), updated.posterior(BOUNDS)
    spread = expected.variance.sqrt().max()
    assert (found.mean - expected.mean).abs().max() < 0.03 * spread
    torch.testing.assert_close(found.variance, expected.variance, rtol=0.06, atol=0)


@pytest.mark.parametrize("network", [bnn, deep_gp])
def test_fantasies(network):
    surrogate, points = model(network(2)), torch.rand(4, 3, 2).double()
    fantasy = surrogate.fantasize(points, SobolQMCNormalSampler(torch.Size([5]), seed=0))
    assert fantasy.batch_shape == (5, 4)
    posterior = fantasy.posterior(torch.rand(5, 4, 2, 2).double())
    assert posterior.mean.shape == (5, 4, 2, 2)
    assert surrogate.batch_shape == ()
    # nearly exact observations are reproduced by all functions, also through subsets and in two steps
    targets, exactly = torch.randn(5, 4, 3, 2).double(), torch.full((1, 2), 1e-9).double()
    observed = surrogate.condition_on_observations(points, targets, noise=exactly)
    torch.testing.assert_close(observed.posterior(points.expand(5, -1, -1, -1)).mean, targets, rtol=0, atol=1e-3)
    second = observed.subset_output([1]).posterior(points.expand(5, -1, -1, -1))
    torch.testing.assert_close(second.mean, targets[..., 1:], rtol=0, atol=1e-3)
    steps = surrogate.condition_on_observations(points[:, :1], targets[..., :1, :], noise=exactly)
    steps = steps.condition_on_observations(points[:, 1:], targets[..., 1:, :], noise=exactly)
    torch.testing.assert_close(steps.posterior(points.expand(5, -1, -1, -1)).mean, targets, rtol=0, atol=1e-3)
    with pytest.raises(NotImplementedError, match="batch"):
        draw_matheron_paths(observed, sample_shape=torch.Size([2]))
    single = surrogate.condition_on_observations(points[0], targets[0, 0], noise=exactly)
    paths = draw_matheron_paths(single, sample_shape=torch.Size([2]))
    torch.testing.assert_close(paths(points[0][None]), targets[0, 0].mT.expand(2, -1, -1), rtol=0, atol=1e-3)


@pytest.mark.parametrize("network", [bnn, deep_gp])
def test_batches_of_points_and_of_observations(network):
    surrogate, points = model(network(2)), torch.rand(4, 3, 2).double()
    single = surrogate.condition_on_observations(points[0], torch.ones(3, 2).double())
    expected = torch.stack([single.posterior(each).values for each in points])
    torch.testing.assert_close(single.posterior(points).values, expected)
    several = surrogate.condition_on_observations(points, torch.ones(3, 2).double())
    assert several.batch_shape == (4,)
    torch.testing.assert_close(several.posterior(X).values[0], single.posterior(X).values)
    torch.testing.assert_close(several.posterior(X[None, None]).values[0, 0], single.posterior(X).values)
    acquisition = qLogExpectedImprovement(single.subset_output([0]), 1.0)
    assert acquisition(points).shape == (4,)


def test_moving_the_model():
    surrogate = model(bnn().float()).condition_on_observations(X[:1].float(), Y[:1].float())
    wide = surrogate.double()
    assert wide.posterior(X).mean.dtype == torch.float64
    assert model(bnn().float()).posterior(X).mean.dtype == torch.float64


def test_bad_arguments():
    with pytest.raises(TypeError, match="from_estimator"):
        InducingModel(inducing.BNNRegressor(), inducing.Gaussian())
    with pytest.raises(ValueError, match="Categorical"):
        InducingModel(bnn(2), inducing.Categorical())
    with pytest.raises(ValueError, match="Y must have shape"):
        model().condition_on_observations(X[:2], Y[:1])
    with pytest.raises(ValueError, match=r"X must have shape \(..., q, 2\)"):
        model().posterior(X[:, :1])
    ending = inducing.Network([inducing.Linear(2, 1), torch.nn.Tanh()], inducing_points=X)
    with pytest.raises(ValueError, match="last layer"):
        model(ending).condition_on_observations(X[:1], Y[:1])


def test_automatic_choices_and_trees_are_refused():
    x, y = X.numpy(), Y[:, 0].numpy()
    with pytest.raises(ValueError, match="have no gradients"):
        InducingModel.from_estimator(inducing.TreeBNNRegressor([4], max_steps=2, random_state=0).fit(x, y))
    automatic = inducing.AutoRegressor({"bnn": inducing.BNNRegressor([4], max_steps=2)}, random_state=0).fit(x, y)
    with pytest.raises(TypeError, match="use one of its members_"):
        InducingModel.from_estimator(automatic)


def test_targets_on_a_log_scale_are_refused():
    estimator = inducing.BNNRegressor([4], target_transform="log", max_steps=2, random_state=0)
    with pytest.raises(ValueError, match="target_transform='none'"):
        InducingModel.from_estimator(estimator.fit(X.numpy(), 2 + Y[:, 0].numpy()))
