"""NaN in some of several targets of a row. Oracle: each output is fitted to the rows where its target is observed."""

import math

import numpy as np
import pytest
import torch

import inducing
from inducing.nn.last_layer import draw_last_layer, update
from inducing.prediction.log_scale import LogScale
from inducing.prediction.predictive import Predictive
from tests.oracles.linear_regression import log_evidence

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(9, 2, generator=GENERATOR).double()
COMPLETE = torch.stack([X[:, 0].sin(), X.prod(1), X.sum(1)], 1)
MISSING = torch.zeros(9, 3, dtype=torch.bool)
# the third row has no target at all
MISSING[2], MISSING[4, 0], MISSING[5:, 2] = True, True, True
Y = COMPLETE.masked_fill(MISSING, math.nan)
VARIANCE, FREEDOM = [0.1, 0.2, 0.3], [3.0, 4.0, 5.0]
LIKELIHOODS = {
    "gaussian": (inducing.Gaussian(VARIANCE), lambda j: inducing.Gaussian(VARIANCE[j])),
    "heteroscedastic": (
        inducing.HeteroscedasticGaussian(VARIANCE),
        lambda j: inducing.HeteroscedasticGaussian(VARIANCE[j]),
    ),
    "student-t": (inducing.StudentT(VARIANCE, FREEDOM), lambda j: inducing.StudentT(VARIANCE[j], FREEDOM[j])),
    "heteroscedastic-student-t": (
        inducing.HeteroscedasticStudentT(VARIANCE, FREEDOM),
        lambda j: inducing.HeteroscedasticStudentT(VARIANCE[j], FREEDOM[j]),
    ),
    "poisson": (inducing.Poisson(), lambda j: inducing.Poisson()),
    "negative-binomial": (inducing.NegativeBinomial(VARIANCE), lambda j: inducing.NegativeBinomial(VARIANCE[j])),
}


def outputs_for(name):
    columns = 6 if name.startswith("hetero") else 3
    return torch.randn(4, 9, columns, generator=torch.Generator().manual_seed(1)).double().requires_grad_()


def targets_for(name):
    return Y.abs().ceil() if name in ("poisson", "negative-binomial") else Y


def sum_of_observed(function, one_output, outputs, targets=Y):
    """The sum over outputs, each by a likelihood of its own on its observed rows."""
    total = torch.zeros(4, 9).double()
    for j in range(3):
        columns = [j] if outputs.shape[-1] == 3 else [j, j + 3]
        seen = ~MISSING[:, j]
        total[:, seen] += function(one_output(j).double(), outputs[:, seen][..., columns], targets[seen][:, [j]])
    return total


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_log_likelihood_is_the_sum_over_observed_targets(name):
    likelihood, one_output = LIKELIHOODS[name]
    likelihood, outputs, targets = likelihood.double(), outputs_for(name), targets_for(name)
    likelihood.check_targets(targets, tuple(outputs.shape[2:]))
    found = likelihood.log_prob(outputs, targets)
    expected = sum_of_observed(lambda each, f, y: each.log_prob(f, y), one_output, outputs, targets)
    torch.testing.assert_close(found, expected)
    assert (found[:, 2] == 0).all()
    gradients = torch.autograd.grad(found.sum(), [outputs, *likelihood.parameters()])
    torch.testing.assert_close(gradients[0], torch.autograd.grad(expected.sum(), outputs)[0])
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", ["gaussian", "heteroscedastic", "poisson"])
def test_the_expected_log_likelihood_is_the_sum_over_observed_targets(name):
    likelihood, one_output = LIKELIHOODS[name]
    mean, targets, variance = outputs_for(name), targets_for(name), torch.full((1, 1, 1), 0.5).double()
    found = likelihood.double().expected_log_prob(mean, variance, targets)
    expected = sum_of_observed(lambda each, f, y: each.expected_log_prob(f, variance, y), one_output, mean, targets)
    torch.testing.assert_close(found, expected)


def test_the_joint_log_likelihood_is_the_sum_over_observed_targets():
    root = torch.randn(1, 9, 9, generator=torch.Generator().manual_seed(2)).double()
    mean, covariance = outputs_for("gaussian").detach(), root @ root.mT
    expected = torch.zeros(4).double()
    for j in range(3):
        seen = ~MISSING[:, j]
        one = inducing.Gaussian(VARIANCE[j]).double()
        expected += one.joint_log_prob(mean[:, seen][..., [j]], covariance[:, seen][..., seen], Y[seen][:, [j]])
    found = inducing.Gaussian(VARIANCE).double().joint_log_prob(mean, covariance, Y)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [2, 9])
def test_every_elbo_of_an_exact_linear_layer_is_the_evidence_of_the_observed_targets(rows, bias):
    x, y = X[:rows], COMPLETE[:rows].masked_fill(MISSING[:rows], math.nan)
    if rows == 2:
        # the dual form
        y[0, 1] = math.nan
    layer = inducing.Linear(2, 3, bias=bias, posterior="optimal")
    settings = {"inducing_points": x, "inducing_targets": y, "learn_inducing_locations": False}
    network, likelihood = inducing.Network([layer], **settings), inducing.Gaussian([0.1, 0.2, 0.3]).double()
    features = torch.cat([x, torch.ones(rows, 1).double()], 1) if bias else x
    precision = features.shape[1] * torch.eye(features.shape[1]).double()
    expected = 0.0
    for j in range(3):
        seen = ~y[:, j].isnan()
        expected += log_evidence(features[seen], y[seen][:, [j]], precision, VARIANCE[j])
    terms = inducing.evaluate(network, likelihood, (x, y), 20)
    torch.testing.assert_close(terms.samples, expected.expand(20))
    bound = inducing.evaluate(network, likelihood, (x, y), importance_samples=3)
    torch.testing.assert_close(bound.log_weights, expected.expand(3))


def test_an_exact_process_is_that_of_independent_outputs_on_their_rows():
    def elbo(x, y, variance):
        layer = inducing.GPLayer(2, y.shape[1], posterior="optimal", jitter=1e-8)
        settings = {"inducing_points": x, "inducing_targets": y, "learn_inducing_locations": False}
        objective = inducing.ELBO(inducing.Network([layer], **settings), inducing.Gaussian(variance).double(), len(x))
        return objective(x, y, 1, closed_form_kl=True)

    found = elbo(X, Y, VARIANCE)
    parts = [elbo(X[~MISSING[:, j]], Y[~MISSING[:, j]][:, [j]], VARIANCE[j]) for j in range(3)]
    torch.testing.assert_close(found.kl.sum(), sum(part.kl.sum() for part in parts))
    torch.testing.assert_close(found.elbo, sum(part.elbo for part in parts))


def test_an_exact_layer_with_learned_noise_has_finite_gradients():
    y = torch.cat([Y[:, :2], torch.zeros(9, 2).double()], 1)
    layers = [inducing.Linear(2, 5), torch.nn.Tanh()]
    last = inducing.Linear(5, 4, posterior=inducing.OptimalInducing(heteroscedastic=True))
    network = inducing.Network([*layers, last], inducing_points=X, inducing_targets=y, learn_inducing_locations=False)
    likelihood = inducing.HeteroscedasticGaussian([0.1, 0.2]).double()
    history = inducing.fit(network, likelihood, (X, Y[:, :2]), num_steps=3, progress=False)
    assert math.isfinite(history[-1].elbo)
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters() if parameter.requires_grad)
    updated = inducing.update(network, likelihood, (X, Y[:, :2]))
    assert inducing.predict(updated, likelihood, X, 5).mean.isfinite().all()


@pytest.mark.parametrize("last", [inducing.Linear, inducing.GPLayer])
def test_an_update_conditions_each_output_on_its_observed_rows(last):
    layers = [inducing.Linear(2, 3), torch.nn.Tanh(), last(3, 3)]
    draws = draw_last_layer(inducing.Network(layers, inducing_points=X[:5]), 4)
    rows = draws.below(X[None])
    outputs = draws.last(rows).detach()
    noise = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(3)).double()
    variance = torch.tensor(VARIANCE).double()
    found = update(draws.covariance, rows, outputs, Y, variance, noise).coefficients[..., 0]
    for j in range(3):
        seen = ~MISSING[:, j]
        part = update(
            draws.covariance.select([j]),
            rows[:, seen],
            outputs[:, seen][..., [j]],
            Y[seen][:, [j]],
            variance[[j]],
            noise[:, seen][..., [j]],
        )
        torch.testing.assert_close(found[:, j, seen], part.coefficients[:, 0, :, 0])
        assert (found[:, j, ~seen] == 0).all()


def test_mini_batches_and_held_out_rows_may_have_missing_targets():
    network = inducing.models.mlp(2, 3, [5], inducing_points=X[:4])
    settings = {"num_steps": 4, "batch_size": 2, "progress": False}
    likelihood = inducing.Gaussian(VARIANCE).double()
    history = inducing.fit(network, likelihood, (X, Y), validation=(X, Y), **settings)
    assert all(math.isfinite(record.elbo) for record in history)
    assert math.isfinite(history.held_out[-1][1])


def test_a_column_that_is_not_standardised_is_found_without_its_missing_targets():
    network = inducing.models.mlp(2, 3, [5], num_inducing=4).double()
    with pytest.warns(inducing.errors.DataWarning, match="its column 1 has mean 1e\\+03 and standard deviation"):
        inducing.fit(
            network,
            inducing.Gaussian().double(),
            (X, Y + torch.tensor([0.0, 1e3, 0.0])),
            num_steps=1,
            progress=False,
        )


def test_predictions_are_scored_on_observed_targets():
    predictive = Predictive(outputs_for("gaussian").detach(), inducing.Gaussian(VARIANCE).double())
    predictive = predictive.unstandardise(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 1.0, 2.0]))
    location, scale = predictive.location, predictive.scale
    expected = torch.zeros(4, 9).double()
    for j in range(3):
        seen = ~MISSING[:, j]
        one = inducing.Gaussian(VARIANCE[j]).double()
        standardised = ((Y - location) / scale)[seen][:, [j]]
        expected[:, seen] += one.log_prob(predictive.outputs[:, seen][..., [j]], standardised) - scale[j].log()
    torch.testing.assert_close(predictive.log_prob(Y), expected.logsumexp(0) - math.log(4))
    errors = (predictive.mean - COMPLETE)[~MISSING]
    assert inducing.metrics.rmse(predictive, Y) == pytest.approx(errors.square().mean().sqrt().item())
    low, high = predictive.quantile([0.05, 0.95])
    inside = ((low <= COMPLETE) & (high >= COMPLETE))[~MISSING].double().mean()
    assert inducing.metrics.coverage(predictive, Y) == pytest.approx(inside.item())
    assert math.isfinite(inducing.metrics.crps(predictive, Y))


def test_a_log_scale_leaves_out_missing_targets():
    y = torch.tensor([[2.0, math.nan], [math.nan, 3.0]]).double()
    noise, one, zero = inducing.Gaussian(0.5).double(), torch.ones(2).double(), torch.zeros(2).double()
    found = LogScale(noise, zero, one, torch.tensor([True, False])).log_prob(torch.zeros(1, 2, 2).double(), y)
    log_density = noise.log_prob(torch.zeros(1, 2, 1).double(), torch.tensor([[math.log(2)], [3.0]]).double())
    torch.testing.assert_close(found, log_density - torch.tensor([[math.log(2), 0.0]]).double())


def test_standardisation_leaves_out_missing_values():
    weights = torch.arange(1.0, 10.0)
    scale = inducing.Standardiser.of(Y, weights)
    for j in range(3):
        seen = ~MISSING[:, j]
        one = inducing.Standardiser.of(Y[seen][:, [j]], weights[seen])
        torch.testing.assert_close((scale.mean[j], scale.std[j]), (one.mean[0], one.std[0]))
    with pytest.raises(ValueError, match="column 1 has only NaN"):
        inducing.Standardiser.of(np.array([[1.0, np.nan], [2.0, np.nan]]))


def test_a_network_with_missing_targets_is_saved(tmp_path):
    settings = {"inducing_points": X, "inducing_targets": Y, "learn_inducing_locations": False}
    network = inducing.Network([inducing.Linear(2, 3, posterior="optimal")], **settings)
    likelihood = inducing.Gaussian(VARIANCE).double()
    inducing.save((network, likelihood), tmp_path / "model.safetensors")
    loaded = inducing.load(tmp_path / "model.safetensors")
    assert torch.equal(inducing.predict(*loaded, X, 3).outputs, inducing.predict(network, likelihood, X, 3).outputs)


def test_what_cannot_be_missing():
    likelihood = inducing.Gaussian().double()
    network = inducing.models.mlp(2, 3, [5], num_inducing=4).double()
    with pytest.raises(ValueError, match="column 1 of y has only NaN"):
        inducing.fit(network, likelihood, (X, Y * torch.tensor([1.0, math.nan, 1.0])), progress=False)
    with pytest.raises(ValueError, match="y contains inf in 8 of 9 rows"):
        inducing.fit(network, likelihood, (X, Y * math.inf), progress=False)
    one = inducing.models.mlp(2, 1, [5], num_inducing=4).double()
    with pytest.raises(ValueError, match="y contains NaN or inf in 2 of 9 rows"):
        inducing.fit(one, likelihood, (X, Y[:, :1]), progress=False)
    with pytest.raises(ValueError, match="inducing_targets contains NaN"):
        inducing.models.mlp(2, 3, [5], inducing_points=X, inducing_targets=Y)
    last = inducing.Linear(2, 4, posterior=inducing.OptimalInducing(heteroscedastic=True))
    y = torch.cat([Y[:, :2], Y[:, :2]], 1)
    with pytest.raises(ValueError, match="noise columns of inducing_targets contains NaN"):
        inducing.Network([last], inducing_points=X, inducing_targets=y, learn_inducing_locations=False)
    tight = inducing.Network([inducing.GPLayer(2, 3, conditional="tight")], inducing_points=X[:4])
    with pytest.raises(ValueError, match="does not support missing targets"):
        inducing.evaluate(tight, likelihood, (X, Y))
