import warnings

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import inducing

X = torch.linspace(-1, 1, 20)[:, None]
Y = X.sin() + 0.1 * torch.randn(20, 1)


def network(posterior="global", seed=0, **kwargs):
    torch.manual_seed(seed)
    return inducing.models.mlp(1, 1, [5], posterior=posterior, num_inducing=6, **kwargs)


def fit(net=None, data=(X, Y), likelihood=None, **kwargs):
    return inducing.fit(
        net or network(), likelihood or inducing.Gaussian(), data, progress=False, **{"num_steps": 5, **kwargs}
    )


@pytest.mark.parametrize("posterior", ["factorised", "local", "global", "factorised->global", "prior->global"])
def test_the_elbo_rises(posterior):
    history = fit(network(posterior), num_steps=150, learning_rate=3e-2)
    assert sum(history.elbo[-20:]) / 20 > sum(history.elbo[:20]) / 20 + 0.2


def test_one_layer_reaches_the_evidence():
    """Training finds the optimal posterior of linear regression, where the bound is the evidence."""
    likelihood = inducing.Gaussian(0.05, learn_variance=False)
    net = inducing.models.mlp(1, 1, [], inducing_points=X)
    fit(net, likelihood=likelihood, num_steps=600, learning_rate=5e-2)
    samples = inducing.ELBO(net, likelihood, 20)(X, Y, 200).samples
    design = torch.cat([X, torch.ones(20, 1)], 1)
    covariance = design @ design.mT / 2 + 0.05 * torch.eye(20)
    evidence = torch.distributions.MultivariateNormal(torch.zeros(20), covariance).log_prob(Y[:, 0])
    assert evidence - 0.15 < samples.mean() < evidence + 0.05


@pytest.mark.parametrize("data", [(X, Y), TensorDataset(X, Y)], ids=["tensors", "dataset"])
def test_the_same_seed_gives_the_same_numbers(data):
    runs = []
    for seed in (1, 1, 2):
        net = network()
        history = fit(net, data, batch_size=8, num_steps=10, seed=seed)
        runs.append((history.elbo, net.inducing_points.detach().clone()))
    assert runs[0][0] == runs[1][0] != runs[2][0]
    assert torch.equal(runs[0][1], runs[1][1])


def test_whole_weights_train_as_repeated_rows():
    weights = torch.arange(20.0) % 3
    repeated = torch.arange(20).repeat_interleave(weights.long())
    histories = [fit(network(), data, num_steps=30) for data in ((X, Y, weights), (X[repeated], Y[repeated]), (X, Y))]
    weighted, again, unweighted = (torch.tensor(history.elbo) for history in histories)
    torch.testing.assert_close(weighted, again, rtol=1e-3, atol=1e-3)
    assert (weighted - unweighted).abs().max() > 10 * (weighted - again).abs().max()


def test_an_exact_last_layer_knows_the_weights_of_its_rows():
    """One layer has nothing to learn but the noise: the bound is the evidence, of weighted rows as of repeated ones."""
    weights = torch.arange(20.0) % 3 + 0.5
    repeated = torch.arange(20).repeat_interleave((2 * weights).long())

    def trained(x, y, *weights):
        torch.manual_seed(0)
        layer = inducing.Linear(1, 1, posterior="optimal")
        exact = inducing.Network([layer], x, y, learn_inducing_locations=False)
        return torch.tensor(fit(exact, (x, y, *weights), num_steps=20).elbo)

    weighted, again = trained(X, Y, 2 * weights), trained(X[repeated], Y[repeated])
    torch.testing.assert_close(weighted, again, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(weighted, trained(X, Y), rtol=1e-2, atol=1e-2)


def test_an_exact_last_layer_forgets_the_weights_of_an_earlier_fit():
    exact = inducing.Network([inducing.Linear(1, 1, posterior="optimal")], X, Y, learn_inducing_locations=False)
    fit(exact, (X, Y, torch.arange(20.0)), num_steps=1)
    assert exact.last_layer.posterior.row_weights.tolist() == torch.arange(20.0).tolist()
    fit(exact, (X, Y), num_steps=1)
    assert exact.last_layer.posterior.row_weights.tolist() == [1.0] * 20


@pytest.mark.parametrize(("x", "y", "name"), [(X.flip(0), Y, "x"), (X, Y.flip(0), "y")])
def test_an_exact_last_layer_is_for_the_data_that_it_was_built_with(x, y, name):
    points = {"inducing_points": x, "inducing_targets": y, "learn_inducing_locations": False}
    exact = inducing.models.mlp(1, 1, [5], posterior="global->optimal", **points)
    with pytest.raises(ValueError, match=f"for other data: {name} differs"):
        fit(exact, (X, Y))


def test_the_global_random_state_is_untouched():
    net = network()
    before = torch.get_rng_state()
    fit(net)
    assert torch.equal(before, torch.get_rng_state())


def test_a_loader_does():
    assert len(fit(data=DataLoader(TensorDataset(X, Y), batch_size=7))) == 5


def test_the_history_tells_everything():
    history = fit(network(prior="scale"), temperature=0.5, num_steps=4, learning_rate=0.01)
    record = history[-1]
    assert [each.step for each in history.records] == [1, 2, 3, 4]
    assert len(record.kl) == len(record.prior_kl) == 2
    assert record.elbo == pytest.approx(record.log_likelihood - sum(record.kl) - sum(record.prior_kl))
    assert record.temperature == 0.5
    rates = [each.learning_rate for each in history.records]
    assert rates == pytest.approx([0.01, 0.00853553, 0.005, 0.00146447], rel=1e-5)
    assert all(each.gradient_norm > 0 and each.jitter == 0 for each in history.records)
    assert all(a.seconds < b.seconds for a, b in zip(history.records, history.records[1:], strict=False))


def test_the_kl_warms_up_in_stairs():
    history = fit(batch_size=10, kl_warmup_epochs=10, num_steps=24)
    expected = [epoch / 10 for epoch in range(10) for _ in range(2)] + [1.0] * 4
    assert [record.temperature for record in history.records] == pytest.approx(expected)


def test_a_run_that_was_damped_to_the_end_says_so():
    net, calls = network(), []

    def spoil(gradient):
        calls.append(True)
        return gradient * float("nan") if 2 <= len(calls) < 8 else gradient

    net.inducing_points.register_hook(spoil)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(net, num_steps=6)
    assert any("step size was reduced" in str(w.message) and "Lower learning_rate" in str(w.message) for w in caught)


def test_gradients_whose_squares_overflow_are_named():
    net = network()
    net.inducing_points.register_hook(lambda gradient: gradient * 1e30)
    with pytest.raises(inducing.DivergenceError, match=r"the gradient of network\.inducing_points is not finite"):
        fit(net)


def test_callbacks_see_every_step_and_can_stop():
    seen = []
    history = fit(
        callbacks=[lambda record: seen.append(record.step), lambda record: record.step == 3, lambda record: 1]
    )
    assert seen == [1, 2, 3]
    assert len(history) == 3


def test_noise_is_learned_or_fixed():
    for learn in (True, False):
        likelihood = inducing.Gaussian(0.5, learn_variance=learn)
        fit(likelihood=likelihood)
        assert (likelihood.noise_variance.item() != pytest.approx(0.5)) == learn


def test_classification():
    labels = torch.arange(60) % 3
    x = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.5]])[labels] + 0.2 * torch.randn(60, 2)
    net = inducing.models.mlp(2, 3, [10], inducing_points=x[:20], inducing_targets=labels[:20])
    fit(net, (x, labels), inducing.Categorical(), num_steps=100)
    predictive = inducing.predict(net, inducing.Categorical(), x)
    assert inducing.metrics.accuracy(predictive, labels) > 0.95
    # better than guessing on average, and sure of itself
    assert inducing.metrics.log_likelihood(predictive, labels) > -0.5


def test_more_inducing_points_than_data_are_allowed_and_explained():
    with pytest.warns(UserWarning, match="30 inducing points for 20 data points"):
        history = fit(inducing.models.mlp(1, 1, [5], num_inducing=30))
    assert len(history) == 5


def test_divergence_stops_before_the_parameters_are_spoilt():
    net = network("factorised")
    with torch.no_grad():
        net.layers[2].posterior.scaled_mean[0, 0] = 1e30
    before = {name: parameter.clone() for name, parameter in net.named_parameters()}
    with pytest.raises(
        inducing.DivergenceError, match=r"step 1: the KL of layers\.2 is not finite.*lower learning_rate"
    ):
        fit(net)
    assert all(torch.equal(before[name], parameter) for name, parameter in net.named_parameters())


def test_nothing_to_learn():
    net = inducing.models.mlp(1, 1, posterior="prior")
    with pytest.raises(ValueError, match="parameters to learn"):
        fit(net, likelihood=inducing.Gaussian(learn_variance=False))


def test_settings_are_checked():
    with pytest.raises(ValueError, match="num_steps must be at least 1"):
        fit(num_steps=0)
    with pytest.raises(TypeError, match=r"a recipe has no nun_steps"):
        fit(nun_steps=3)


def test_the_progress_bar_shows_the_elbo(capsys):
    inducing.fit(network(), inducing.Gaussian(), (X, Y), num_steps=3, description="my fit")
    shown = capsys.readouterr().out
    assert "my fit" in shown
    assert "3/3" in shown
    assert "ELBO" in shown


@pytest.mark.filterwarnings("ignore:x is not standardised")
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_training_survives_extreme_scales(scale):
    """Five layers in float32, inputs scaled by 1e-6 and 1e6, a constant feature, duplicate rows: finite to the end."""
    x = scale * torch.cat([X, torch.ones_like(X)], 1)
    x[10:] = x[:10]
    net = inducing.models.mlp(2, 1, [10] * 4, inducing_points=x, inducing_targets=Y)
    history = fit(net, (x, Y), num_steps=50)
    assert all(abs(value) < float("inf") for value in history.elbo)


def test_data_that_are_not_standardised_are_pointed_out():
    with pytest.warns(UserWarning, match=r"y is not standardised: its column 0 has mean .*inducing\.Standardiser"):
        fit(data=(X, 1000 * Y))
    with pytest.warns(UserWarning, match="x is not standardised"):
        fit(data=(X + 100, Y))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, inducing.Gaussian), "likelihood must be .*the class Gaussian"),
        ((None, torch.nn.MSELoss()), "likelihood must be .*got a MSELoss"),
        ((torch.nn.Linear(1, 1), None), "network must be an inducing.Network, got a Linear"),
    ],
)
def test_other_peoples_modules_are_refused(arguments, message):
    net, likelihood = arguments
    with pytest.raises(TypeError, match=message):
        inducing.fit(net or network(), likelihood or inducing.Gaussian(), (X, Y), num_steps=1, progress=False)


def test_evaluate_is_the_elbo_without_gradients():
    net, likelihood = network(), inducing.Gaussian()
    first, again, other = (inducing.evaluate(net, likelihood, (X, Y), 10, seed).elbo for seed in (0, 0, 1))
    assert first == again != other
    assert not first.requires_grad


def test_no_warnings_in_an_ordinary_fit():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit()


def test_patience_stops_a_run_that_has_come_to_rest():
    history = fit(network("factorised"), num_steps=2000, patience=100, schedule="constant", learning_rate=0.03)
    assert 200 <= len(history) < 2000
    assert len(history) % 100 == 0


def test_training_inside_no_grad_learns_all_the_same():
    inside, outside = network(), network()
    with torch.no_grad():
        history = fit(inside)
    assert history.elbo == fit(outside).elbo
    assert not torch.equal(inside.inducing_points, network().inducing_points)


def test_training_inside_inference_mode_is_refused():
    net = network()
    with torch.inference_mode(), pytest.raises(RuntimeError, match="inference_mode"):
        fit(net)


def test_the_data_get_no_gradients():
    x, y, weights = X.clone().requires_grad_(), Y.clone().requires_grad_(), torch.ones(20).requires_grad_()
    fit(data=(x, y, weights))
    assert all(each.grad is None for each in (x, y, weights))


@pytest.mark.parametrize("seed", [None, 1.5, "1"])
def test_a_seed_that_is_not_a_whole_number_is_refused(seed):
    with pytest.raises(TypeError, match="seed"):
        fit(seed=seed)
    with pytest.raises(TypeError, match="seed"):
        network().sample_functions(2, seed=seed)
    with pytest.raises(TypeError, match="seed"):
        inducing.choose_inducing_points(X, Y, 5, seed=seed)


@pytest.mark.parametrize("data", [(X, Y), TensorDataset(X, Y), DataLoader(TensorDataset(X, Y), 8)])
def test_epochs_are_passes_over_the_data(data):
    settings = {"progress": False, "batch_size": 8}
    assert len(inducing.fit(network(), inducing.Gaussian(), data, epochs=2, **settings)) == 6
    by_steps = inducing.fit(network(), inducing.Gaussian(), (X, Y), num_steps=6, **settings)
    assert inducing.fit(network(), inducing.Gaussian(), (X, Y), epochs=2, **settings).elbo == by_steps.elbo


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"epochs": 2, "num_steps": 5}, "leave one of them out"), ({"epochs": 0, "batch_size": 5}, "epochs")],
)
def test_epochs_that_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        inducing.fit(network(), inducing.Gaussian(), (X, Y), progress=False, **settings)
