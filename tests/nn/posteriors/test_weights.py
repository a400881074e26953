import json
import math
from dataclasses import asdict

import pytest
import torch
from torch.distributions import Normal, kl_divergence

import inducing
from inducing.linalg.precision import Dense, ScaledIdentity
from inducing.nn.context import BuildContext, DrawContext
from inducing.nn.posteriors import POSTERIORS, posteriors_for_layers
from inducing.nn.posteriors.base import WeightContext
from inducing.nn.priors import WeightLayout, as_prior


def context(fan_in=4, out_features=3, num_inducing=6, targets=None, is_last=False):
    network = BuildContext((fan_in,), num_inducing, targets)
    return WeightContext(WeightLayout(fan_in), out_features, is_last, network)


NEAL = ScaledIdentity(torch.tensor([4.0]), 4)


@pytest.mark.parametrize("kl", ["sample", "closed_form"])
def test_factorised_kl_is_that_of_torch_distributions(kl):
    posterior = inducing.Factorised(kl=kl, initial_variance=0.5).build_weights(context())
    mean, variance = posterior.moments()
    weights, value = posterior(None, NEAL, DrawContext(5))
    q, p = Normal(mean, variance.sqrt()), Normal(torch.zeros(()), torch.tensor(0.5))
    expected = (
        kl_divergence(q, p).sum().expand(5)
        if kl == "closed_form"
        else (q.log_prob(weights) - p.log_prob(weights)).sum((1, 2))
    )
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-4)


def test_factorised_kl_with_a_dense_prior():
    root = torch.randn(1, 4, 4)
    prior = Dense(root @ root.mT + torch.eye(4))
    posterior = inducing.Factorised(initial_variance=0.5).build_weights(context())
    mean, variance = posterior.moments()
    expected = sum(
        kl_divergence(
            torch.distributions.MultivariateNormal(mean[:, o], torch.diag(variance[:, o])),
            torch.distributions.MultivariateNormal(torch.zeros(4), precision_matrix=prior.matrix[0]),
        )
        for o in range(3)
    )
    torch.testing.assert_close(posterior.closed_form_kl(prior)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("prior", ["scale", "spatial-iw", "channel-iw", "kronecker-iw"])
def test_the_factorised_kl_is_the_mean_over_the_variables_of_the_prior(prior):
    """The closed form given a sample of the prior, averaged over samples."""
    layout = WeightLayout(2, 3, bias=True)
    module = as_prior(prior).build(layout).double()
    for name, parameter in module.named_parameters():
        # few enough degrees of freedom to matter, and enough for a variance to exist
        if name.endswith("log_nu"):
            parameter.data.fill_(1.0)
        if name.startswith("log_"):
            parameter.data.fill_(2.0)
    posterior = inducing.Factorised(initial_variance=0.5).build_weights(context(7)).double()
    sampled, _ = module(20_000, torch.Generator().manual_seed(0))
    conditional = posterior.closed_form_kl(Dense(sampled.dense()))
    mean = posterior.closed_form_kl(sampled)
    assert mean.shape == (1,)
    z = (conditional.mean() - mean) / conditional.std() * len(conditional) ** 0.5
    assert abs(z.item()) < 4
    assert conditional.std() > 0.1, "it depends on the sample"
    torch.testing.assert_close(posterior.closed_form_kl(sampled, given_prior=True), conditional)


@pytest.mark.parametrize("size", [1, 100, 1000])
def test_the_factorised_kl_keeps_its_digits_with_few_degrees_of_freedom(size):
    layout = WeightLayout(size)
    module = inducing.ChannelIWPrior(initial=1e-3).build(layout)
    posterior = inducing.Factorised().build_weights(context(size))
    single = posterior.closed_form_kl(module(1).precision)
    wide = posterior.double().closed_form_kl(module.double()(1).precision)
    torch.testing.assert_close(single.double(), wide, rtol=1e-3, atol=1e-3)


def test_factorised_initialisation_is_the_papers():
    posterior = inducing.Factorised().build_weights(context(fan_in=400, out_features=100))
    mean, variance = posterior.moments()
    # means from NealPrior, stored at scale 1; variances 1e-3 / sqrt(fan-in)
    assert abs(posterior.scaled_mean.std() - 1) < 0.02
    torch.testing.assert_close(mean.std().item(), 1 / 20, rtol=0.02, atol=0)
    torch.testing.assert_close(variance, torch.full_like(variance, 1e-3 / 20))


@pytest.mark.parametrize(("is_last", "given", "expected"), [(False, None, -4.0), (True, None, 0.0), (True, -2.0, -2.0)])
@pytest.mark.parametrize("cls", [inducing.GlobalInducing, inducing.LocalInducing])
def test_initial_log_precision(cls, is_last, given, expected):
    posterior = cls(log_precision=given).build_weights(context(is_last=is_last))
    torch.testing.assert_close(2 * posterior.precision_root().log()[0, 0].item(), expected)
    # stored divided by 3, for Adam
    torch.testing.assert_close(posterior.scaled_log_precision[0, 0].item(), expected / 3)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("shared", (1, 6)), ("per_output", (3, 6)), ("full", (1, 6, 6)), ("full_per_output", (3, 6, 6))],
)
def test_precision_roots(kind, shape):
    posterior = inducing.GlobalInducing(kind).build_weights(context())
    assert posterior.precision_root().shape == shape
    if kind.startswith("full"):
        with torch.no_grad():
            posterior.precision_lower.normal_()
        root = posterior.precision_root()
        assert torch.equal(root, root.tril())
        assert (root.diagonal(dim1=-2, dim2=-1) > 0).all()


def test_pseudo_outputs_begin_at_the_targets_or_at_noise():
    targets = torch.randn(6, 3)
    assert torch.equal(
        inducing.GlobalInducing().build_weights(context(targets=targets, is_last=True)).pseudo_outputs, targets
    )
    noise = inducing.GlobalInducing().build_weights(context(num_inducing=2000)).pseudo_outputs
    assert abs(noise.std() - 1) < 0.05


def test_local_inducing_inputs_are_its_own():
    assert inducing.LocalInducing().build_weights(context()).inducing_inputs.shape == (4, 4)
    assert inducing.LocalInducing(num_inducing=9).build_weights(context()).inducing_inputs.shape == (9, 4)
    many = inducing.LocalInducing(num_inducing=2000).build_weights(context()).inducing_inputs
    assert abs(many.mean()) < 0.05
    assert abs(many.std() - 1) < 0.05


def test_prior_only_is_the_prior():
    posterior = inducing.PriorOnly().build_weights(context())
    weights, kl = posterior(None, NEAL, DrawContext(10_000, torch.Generator().manual_seed(0)))
    assert not list(posterior.parameters())
    assert (kl == 0).all()
    variance = weights.var(0)
    assert ((variance - 0.25) / (0.25 * math.sqrt(2 / 10_000))).abs().max() < 4.5


def test_names_for_layers():
    mixed = posteriors_for_layers("factorised -> global", 3)
    assert mixed == [inducing.Factorised(), inducing.Factorised(), inducing.GlobalInducing()]
    assert posteriors_for_layers("prior->local", 1) == [inducing.LocalInducing()]
    assert posteriors_for_layers("local", 2) == [inducing.LocalInducing()] * 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: inducing.Linear(1, 1, posterior="laplace"),
            '"factorised", "local", "global", "optimal", "dsvi", "coupled", "prior"',
        ),
        (lambda: inducing.models.mlp(1, 1, posterior="factorised->laplace"), "unknown posterior 'laplace'"),
        (lambda: inducing.GlobalInducing(precision="diagonal"), "'shared', 'per_output', 'full', 'full_per_output'"),
        (lambda: inducing.GlobalInducing(kl="exact"), "'sample', 'closed_form'"),
        (lambda: inducing.LocalInducing(num_inducing=0), "at least 1"),
        (lambda: inducing.Factorised(initial_variance=0.0), "positive"),
        (lambda: inducing.Factorised(local_reparameterisation=True, kl="sample"), "does not sample weights"),
    ],
)
def test_bad_specifications_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("cls", POSTERIORS.values())
def test_specifications_are_values(cls):
    """Equal, hashable, JSON."""
    assert cls() == cls()
    assert hash(cls()) == hash(cls())
    assert cls(**json.loads(json.dumps(asdict(cls())))) == cls()


@pytest.mark.parametrize("kl", ["sample", "closed_form"])
def test_the_factorised_kl_of_a_wide_layer_keeps_its_digits_in_float32(kl):
    posterior = inducing.Factorised(kl=kl).build_weights(context(2000, 2000))
    prior = ScaledIdentity(torch.tensor([2000.0]), 2000)
    generator = torch.Generator().manual_seed(0)
    single = posterior(None, prior, DrawContext(1, generator)).kl.item()
    torch.manual_seed(0)
    noise = torch.randn(1, 2000, 2000, generator=generator.manual_seed(0)).double()
    mean, variance = (moment.double() for moment in posterior.moments())
    # log N(w; mean, variance) - log N(w; 0, 1 / 2000), or its mean
    if kl == "sample":
        exact = (2000 * (mean + variance.sqrt() * noise).square() - noise.square() - (2000 * variance).log()).sum() / 2
    else:
        exact = (2000 * (mean.square() + variance) - (2000 * variance).log() - 1).sum() / 2
    assert single == pytest.approx(exact.item(), rel=2e-7)
