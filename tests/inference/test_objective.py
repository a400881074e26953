import math
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import inducing
from inducing import threads

X, Y = torch.randn(12, 3), torch.randn(12, 2)


def elbo(posterior="global", prior="scale", num_data=12):
    torch.manual_seed(0)
    network = inducing.models.mlp(3, 2, [5], posterior=posterior, prior=prior, num_inducing=4)
    return inducing.ELBO(network, inducing.Gaussian(), num_data)


def test_the_terms_add_up():
    terms = elbo()(X, Y, num_samples=6, temperature=0.25)
    assert terms.log_likelihood.shape == (6,)
    assert terms.kl.shape == terms.prior_kl.shape == (2, 6)
    likelihood, kl, prior_kl = terms.log_likelihood.mean(), terms.kl.mean(1).sum(), terms.prior_kl.mean(1).sum()
    assert prior_kl > 0
    torch.testing.assert_close(terms.elbo, likelihood - kl - prior_kl)
    torch.testing.assert_close(terms.elbo_per_datapoint, terms.elbo / 12)
    torch.testing.assert_close(terms.samples.mean(), terms.elbo)
    # the ELBO is never tempered, the objective is
    torch.testing.assert_close(terms.objective, likelihood - 0.25 * (kl + prior_kl))


def test_the_evidence_of_an_exact_last_layer_is_not_tempered():
    places = {"inducing_points": X, "inducing_targets": Y, "learn_inducing_locations": False}
    network = inducing.models.mlp(3, 2, [5], posterior="global->optimal", **places)
    terms = inducing.ELBO(network, inducing.Gaussian(), 12)(X, Y, num_samples=6, temperature=0.25)
    below, last = terms.kl + terms.prior_kl
    evidence = terms.log_likelihood - last
    assert terms.whole_last
    torch.testing.assert_close(terms.objective, (evidence - 0.25 * below).mean())
    torch.testing.assert_close(terms.elbo, (evidence - below).mean())


def test_the_kl_of_the_last_layer_may_be_left_whole():
    terms = elbo()(X, Y, num_samples=6, temperature=0.25, whole_last=True)
    kl = terms.kl + terms.prior_kl
    torch.testing.assert_close(terms.objective, (terms.log_likelihood - 0.25 * kl[:-1].sum(0) - kl[-1]).mean())
    torch.testing.assert_close(terms.elbo, (terms.log_likelihood - kl.sum(0)).mean())


def test_the_terms_are_those_of_the_draw():
    objective = elbo()
    terms = objective(X, Y, 3, generator=torch.Generator().manual_seed(1))
    draw = objective.network.draw(3, torch.Generator().manual_seed(1))
    torch.testing.assert_close(terms.kl, torch.stack([layer.kl for layer in draw.layers]))
    torch.testing.assert_close(terms.log_likelihood, objective.likelihood.log_prob(draw(X), Y).sum(-1))


def test_minibatches_are_scaled_up_to_all_data():
    """The mean over all batches of the scaled log-likelihood is that of the whole set; the KL is not scaled."""
    objective = elbo()

    def terms(x, y):
        return objective(x, y, 2, generator=torch.Generator().manual_seed(0))

    parts = [terms(X[rows], Y[rows]) for rows in torch.arange(12).split(4)]
    whole = terms(X, Y)
    torch.testing.assert_close(sum(part.log_likelihood for part in parts) / 3, whole.log_likelihood)
    torch.testing.assert_close(parts[0].kl, whole.kl)


def test_whole_weights_are_repeated_rows():
    weights = torch.arange(12.0) % 4
    repeated = torch.arange(12).repeat_interleave(weights.long())
    network, likelihood = elbo().network, inducing.Gaussian()
    weighted = inducing.evaluate(network, likelihood, (X, Y, weights), 5)
    again = inducing.evaluate(network, likelihood, (X[repeated], Y[repeated]), 5)
    assert weighted.num_data == again.num_data == 18
    torch.testing.assert_close(weighted.log_likelihood, again.log_likelihood)
    torch.testing.assert_close(weighted.elbo_per_datapoint, again.elbo_per_datapoint)
    assert not torch.allclose(weighted.elbo, inducing.evaluate(network, likelihood, (X, Y), 5).elbo)


@pytest.mark.parametrize("data", [(X, Y), (X, Y, torch.arange(12.0))], ids=["plain", "weighted"])
def test_evaluation_in_batches_is_that_of_the_whole(data):
    network, likelihood = elbo().network, inducing.Gaussian()
    whole, parts = (inducing.evaluate(network, likelihood, data, 5, batch_size=size) for size in (None, 5))
    torch.testing.assert_close(parts.log_likelihood, whole.log_likelihood)
    assert torch.equal(parts.kl, whole.kl)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        inducing.evaluate(network, likelihood, data, batch_size=0)


def test_weights_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"weights must have shape \(12,\), one for each row, got \(3,\)"):
        elbo()(X, Y, weights=torch.ones(3))


def test_the_elbo_is_below_the_evidence():
    """A bound: for linear regression, where the evidence is known, no posterior exceeds it in expectation."""
    x, y = torch.randn(15, 3).double(), torch.randn(15, 1).double()
    likelihood = inducing.Gaussian(0.5, learn_variance=False).double()
    design = torch.cat([x, torch.ones(15, 1)], 1)
    covariance = design @ design.mT / 4 + likelihood.noise_variance * torch.eye(15)
    evidence = torch.distributions.MultivariateNormal(torch.zeros(15).double(), covariance).log_prob(y[:, 0])
    for posterior in ("factorised", "local", "global"):
        network = inducing.models.mlp(3, 1, [], posterior=posterior, num_inducing=6).double()
        recipe = inducing.Recipe(num_steps=400, learning_rate=5e-2)
        inducing.fit(network, likelihood, (x, y), recipe, progress=False)
        terms = inducing.ELBO(network, likelihood, 15)(x, y, 4000)
        error = terms.samples.std() / math.sqrt(4000)
        assert evidence - 2 < terms.samples.mean() < evidence + 4 * error
        # without the KL it would be above
        assert terms.log_likelihood.mean() > evidence + 1


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (X[:0], Y[:0], ValueError, "zero rows"),
        (X, Y[:5], ValueError, "same number of rows"),
        (X, Y[:, 0], ValueError, r"y must have shape \(B, 2\), got \(12,\)"),
        (X, Y / 0, ValueError, "y contains inf"),
        (X, Y.long(), TypeError, "y must be floating point"),
        (X, Y.double(), TypeError, r"y is torch\.float64 but the network is torch\.float32; convert the data, y\.to"),
    ],
)
def test_bad_data_are_refused(x, y, error, message):
    with pytest.raises(error, match=message):
        elbo()(x, y)
    with pytest.raises(error, match=message):
        inducing.fit(elbo().network, inducing.Gaussian(), (x, y), num_steps=1, progress=False)


def test_labels_out_of_range_are_refused():
    network = inducing.models.mlp(3, 2, num_inducing=4)
    with pytest.raises(ValueError, match=r"labels from 0 to 2, but the network has 2 outputs"):
        inducing.ELBO(network, inducing.Categorical(), 3)(X[:3], torch.tensor([0, 1, 2]))


def test_num_data_is_checked():
    with pytest.raises(ValueError, match="num_data must be positive"):
        elbo(num_data=0)


def test_evaluate_leaves_the_filters_of_warnings_alone(monkeypatch):
    """Also in several Python threads, whose changes of the filters would be mixed up."""
    monkeypatch.setattr(threads, "threads_of_user", lambda: None)
    monkeypatch.setattr(threads, "most_threads", lambda: 2)
    network, x = inducing.models.mlp(2, 1, [3], num_inducing=4), torch.randn(5, 2)
    before = list(warnings.filters)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: inducing.evaluate(network, inducing.Gaussian(), (x, x[:, :1]), 2), range(30)))
    assert warnings.filters == before
