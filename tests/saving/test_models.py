"""Networks and likelihoods are the same after loading: the same draws, the same training."""

import pytest
import torch
from torch import nn

import inducing
from inducing.nn.kernels import KERNELS
from inducing.nn.likelihoods.heteroscedastic import Heteroscedastic
from inducing.nn.posteriors import POSTERIORS
from inducing.nn.priors import PRIORS
from inducing.saving.models import (
    decode_likelihood,
    decode_network,
    encode_likelihood,
    encode_network,
)
from inducing.saving.registry import CLASSES

X = torch.linspace(-2, 2, 60).sin().reshape(20, 3)
Y = X[:, :1].cos()
IMAGES = torch.linspace(-2, 2, 5 * 64).sin().reshape(5, 1, 8, 8)
kernels = inducing.kernels


def again(model, tmp_path):
    inducing.save(model, tmp_path / "model.safetensors")
    before = torch.get_rng_state()
    loaded = inducing.load(tmp_path / "model.safetensors")
    assert torch.equal(before, torch.get_rng_state()), "loading draws no random numbers"
    return loaded


def draws(network, x):
    """Marginal draws with their KL, and whole functions."""
    draw = network.draw(3, torch.Generator().manual_seed(1))
    terms = [term for layer in draw.layers for term in (layer.kl, layer.prior_kl)]
    return [draw(x), *terms, network.sample_functions(3, seed=2)(x)]


def assert_same(network, loaded, x=X):
    assert repr(network) == repr(loaded)
    ours, theirs = ([(n, p.requires_grad) for n, p in net.named_parameters()] for net in (network, loaded))
    assert ours == theirs
    for value, other in zip(draws(network, x), draws(loaded, x), strict=True):
        assert value.dtype == other.dtype
        assert torch.equal(value, other)


def perturb(*modules):
    """Leave the first values, so that none of them could stand in for what was saved."""
    for parameter in (p for module in modules for p in module.parameters()):
        parameter.data += 0.1 * torch.randn(parameter.shape).to(parameter)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(
    "posterior",
    [
        *("factorised", "local", "global", "prior", "factorised->global"),
        inducing.Factorised(local_reparameterisation=True),
        inducing.GlobalInducing("full_per_output", kl="closed_form"),
        inducing.LocalInducing(7, "per_output", -1.0),
    ],
    ids=str,
)
def test_mlp(posterior, prior, tmp_path):
    network = inducing.models.mlp(3, 2, [5], posterior=posterior, prior=prior, num_inducing=6, activation=nn.Tanh)
    perturb(network)
    assert_same(network, again(network, tmp_path))


def test_convolutions_and_residual_blocks(tmp_path):
    network = inducing.Network(
        [
            inducing.Conv2d(1, 4, 3, padding=1, prior="spatial-iw"),
            inducing.InducingNorm(eps=1e-3),
            nn.ReLU(),
            inducing.Residual(
                inducing.Conv2d(4, 4, (1, 3), padding=(0, 1), bias=False, posterior="factorised"),
                nn.Sequential(nn.LeakyReLU(0.3), nn.Tanh()),
                inducing.Residual(nn.SiLU(), shortcut=nn.Identity()),
                shortcut=inducing.Conv2d(4, 4, 1, boundary="exact", prior="scale"),
            ),
            inducing.Conv2d(4, 6, 2, stride=2, boundary="exact", posterior=inducing.LocalInducing(9)),
            nn.AvgPool2d(2),
            nn.Flatten(),
            inducing.Linear(24, 3),
        ],
        inducing_points=IMAGES,
        inducing_targets=torch.arange(5) % 3,
    )
    perturb(network)
    assert_same(network, again(network, tmp_path), IMAGES)


def test_inducing_images_of_another_size(tmp_path):
    network = inducing.models.resnet8((1, 8, 8), 2, channels=2, inducing_points=IMAGES[:, :, 2:6, 1:6])
    perturb(network)
    assert_same(network, again(network, tmp_path), IMAGES)


@pytest.mark.parametrize("make", [inducing.models.lenet, inducing.models.resnet8])
def test_ready_made_convolutional_networks(make, tmp_path):
    images = torch.linspace(-2, 2, 3 * 256).sin().reshape(3, 1, 16, 16)
    network = make((1, 16, 16), inducing_points=images)
    assert_same(network, again(network, tmp_path), images)


@pytest.mark.parametrize("mean", ["identity", "zero"])
@pytest.mark.parametrize("posterior", ["global", "local", "dsvi", "coupled", "prior", "dsvi->global", "global->local"])
def test_deep_gp(posterior, mean, tmp_path):
    # fewer features than inputs: the mean function projects onto principal components
    network = inducing.models.deep_gp(3, 2, 3, width=2, mean=mean, posterior=posterior, inducing_points=X[:6])
    perturb(network)
    assert_same(network, again(network, tmp_path))


@pytest.mark.parametrize("learn", [True, False])
def test_local_layers_have_as_many_inducing_inputs_as_the_points_they_began_at(learn, tmp_path):
    network = inducing.models.deep_gp(3, 1, 2, posterior="dsvi", inducing_points=X[:7], learn_inducing_locations=learn)
    assert network.num_inducing is None
    loaded = again(network, tmp_path)
    assert_same(network, loaded)
    assert loaded.layers[0].posterior.inducing_inputs.shape == (7, 3)
    assert loaded.layers[0].posterior.inducing_inputs.requires_grad == learn


@pytest.mark.parametrize(
    "kernel",
    [
        *KERNELS,
        kernels.Matern52(0.7, ard=False) + kernels.Linear(bias=0.2) * kernels.ArcCosine(2),
        kernels.SquaredExponential(variance=2) * (kernels.Matern12() + kernels.Matern32()),
    ],
    ids=str,
)
def test_kernels(kernel, tmp_path):
    layer = inducing.GPLayer(3, 2, kernel, jitter=1e-5, num_features=16)
    network = inducing.Network([layer], num_inducing=6)
    perturb(network)
    assert_same(network, again(network, tmp_path))


def test_every_posterior_is_in_these_tests():
    assert POSTERIORS.keys() == {"factorised", "local", "global", "optimal", "dsvi", "coupled", "prior", "point"}


@pytest.mark.parametrize("make", [inducing.models.mlp, inducing.models.deep_gp])
def test_an_optimal_last_layer_is_loaded_without_its_likelihood(make, tmp_path):
    points = {"inducing_points": X, "inducing_targets": Y, "learn_inducing_locations": False}
    network, likelihood = make(3, 1, posterior="global->optimal", **points), inducing.Gaussian(0.3)
    perturb(network)
    loaded, loaded_likelihood = again((network, likelihood), tmp_path)
    ours, theirs = (inducing.predict(*pair, X).mean for pair in ((network, likelihood), (loaded, loaded_likelihood)))
    assert torch.equal(ours, theirs)
    with pytest.raises(ValueError, match="likelihood="):
        loaded.draw(1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("make", [inducing.models.mlp, inducing.models.deep_gp])
def test_dtypes(make, dtype, tmp_path):
    network = make(3, 1, inducing_points=X[:6].double(), inducing_targets=Y[:6].double()).to(dtype)
    loaded = again(network, tmp_path)
    assert loaded.dtype == dtype
    assert_same(network, loaded, X.to(dtype))


def test_the_default_dtype_of_whoever_loads_does_not_matter(tmp_path):
    network = inducing.models.deep_gp(3, 1, posterior="coupled", inducing_points=X[:6], inducing_targets=Y[:6])
    inducing.save(network, tmp_path / "model.safetensors")
    torch.set_default_dtype(torch.float64)
    try:
        loaded = inducing.load(tmp_path / "model.safetensors")
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same(network, loaded)


def test_fixed_inducing_points_stay_fixed(tmp_path):
    network = inducing.models.mlp(3, 1, [5], inducing_points=X[:6], learn_inducing_locations=False)
    loaded = again(network, tmp_path)
    assert_same(network, loaded)
    assert "inducing_points" in dict(loaded.named_buffers())
    assert not loaded.learn_inducing_locations


def test_frozen_parameters_stay_frozen(tmp_path):
    network, likelihood = inducing.models.mlp(3, 1, [5], inducing_points=X[:6]), inducing.Gaussian()
    network.layers[0].posterior.pseudo_outputs.requires_grad_(False)
    likelihood.scaled_log_variance.requires_grad_(False)
    loaded, loaded_likelihood = again((network, likelihood), tmp_path)
    assert_same(network, loaded)
    assert not loaded.layers[0].posterior.pseudo_outputs.requires_grad
    assert not loaded_likelihood.scaled_log_variance.requires_grad


@pytest.mark.parametrize(
    "likelihood",
    [
        *(inducing.Gaussian([0.3, 0.5]), inducing.Gaussian(0.2, learn_variance=False)),
        *(inducing.Categorical(), inducing.Bernoulli(), inducing.Poisson()),
        inducing.NegativeBinomial([0.8, 5.0]),
        inducing.StudentT(0.5, 12.0, learn_scale=False),
        inducing.StudentT([0.5, 1.0], 3.0, learn_degrees_of_freedom=False),
        inducing.HeteroscedasticGaussian(0.4).double(),
        inducing.HeteroscedasticStudentT([0.4, 0.5], 5.0, learn_variance=False),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_likelihoods(likelihood, tmp_path):
    perturb(likelihood)
    loaded = again(likelihood, tmp_path)
    assert type(loaded) is type(likelihood)
    assert [n for n, _ in loaded.named_parameters()] == [n for n, _ in likelihood.named_parameters()]
    for name, tensor in likelihood.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    outputs = torch.linspace(-1, 1, 24).reshape(3, 2, 4)[..., : 4 if isinstance(likelihood, Heteroscedastic) else 2]
    assert torch.equal(loaded.variance(outputs), likelihood.variance(outputs))


@pytest.mark.parametrize("cls", CLASSES["likelihood"].values(), ids=str)
def test_a_likelihood_has_no_settings_but_its_tensors(cls):
    """If one gets any, they must be saved too."""
    assert vars(cls()).keys() == vars(nn.Module()).keys()


@pytest.mark.parametrize("make", [inducing.models.mlp, inducing.models.deep_gp])
def test_training_goes_on_as_if_nothing_had_happened(make, tmp_path):
    network, likelihood = make(3, 1, inducing_points=X[:6], inducing_targets=Y[:6]), inducing.StudentT()
    options = {"num_steps": 4, "batch_size": 8, "progress": False}
    inducing.fit(network, likelihood, (X, Y), **options)
    pairs = (network, likelihood), again((network, likelihood), tmp_path)
    histories = [inducing.fit(*pair, (X, Y), seed=1, **options) for pair in pairs]
    assert [r[:-1] for r in histories[0].records] == [r[:-1] for r in histories[1].records]
    assert_same(network, pairs[1][0])
    ours, theirs = (inducing.predict(*pair, X, 10).mean for pair in pairs)
    assert torch.equal(ours, theirs)


def test_a_fresh_network_is_fitted_alike(tmp_path):
    """That it was built with inducing targets is known: fit sets the precision of the last layer by them."""
    network = inducing.models.mlp(3, 1, [5], inducing_points=X[:6], inducing_targets=Y[:6])
    pairs = (network, inducing.Gaussian()), (again(network, tmp_path), inducing.Gaussian())
    for pair in pairs:
        inducing.fit(*pair, (X, Y), num_steps=2, progress=False)
    assert_same(network, pairs[1][0])


def test_a_network_that_was_changed_by_hand_is_refused_when_it_is_saved():
    network = inducing.models.mlp(3, 1, [5], inducing_points=X[:6])
    network.layers[0].posterior.double()
    with pytest.raises(ValueError, match=r"layers.0.posterior.pseudo_outputs is float64"):
        encode_network(network)
    network = inducing.models.mlp(3, 1, [5], inducing_points=X[:6])
    network.inducing_points = nn.Parameter(X[:7])
    with pytest.raises(ValueError, match=r"the tensor inducing_points is float32 \(7, 3\), by the specification"):
        encode_network(network)


def test_a_loaded_network_shares_no_memory_with_its_file(tmp_path):
    network = inducing.models.mlp(3, 1, [5], inducing_points=X[:6])
    loaded = again(network, tmp_path)
    before = loaded.inducing_points.clone()
    content = bytearray((tmp_path / "model.safetensors").read_bytes())
    (tmp_path / "model.safetensors").write_bytes(bytes(len(content)))
    assert torch.equal(loaded.inducing_points, before)


def test_sizes_that_a_file_only_claims_cost_no_memory():
    network = inducing.Network([inducing.Linear(3, 5, posterior="factorised"), nn.Tanh()])
    node, tensors = encode_network(network)
    node["layers"][0]["arguments"]["out_features"] = 10**12
    with pytest.raises(ValueError, match=r"\(4, 5\), by the specification it is float32 \(4, 1000000000000\)"):
        decode_network(node, tensors)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_are_neither_saved_nor_loaded(value):
    network, likelihood = inducing.models.mlp(3, 1, [5], num_inducing=4), inducing.Gaussian()
    node, tensors = encode_network(network)
    with pytest.raises(ValueError, match="'inducing_points' contains NaN"):
        decode_network(node, tensors | {"inducing_points": torch.full((4, 3), value)})
    with torch.no_grad():
        network.inducing_points[0, 0] = value
        likelihood.scaled_log_variance.fill_(value)
    with pytest.raises(ValueError, match="'inducing_points' contains NaN"):
        encode_network(network)
    with pytest.raises(ValueError, match="'scaled_log_variance' contains NaN"):
        encode_likelihood(likelihood)


@pytest.mark.parametrize("rate", [1e300, 10**40])
def test_settings_beyond_the_dtype_are_refused(rate):
    node, tensors = encode_network(inducing.models.mlp(3, 1, [5], prior="scale", num_inducing=4))
    node["layers"][0]["arguments"]["prior"]["arguments"]["rate"] = rate
    with pytest.raises(ValueError, match="too large"):
        decode_network(node, tensors)


@pytest.mark.parametrize("entry", ["frozen", "learned"])
def test_names_that_are_not_text_are_refused(entry):
    node, tensors = encode_likelihood(inducing.Gaussian())
    with pytest.raises(ValueError, match="cannot be"):
        decode_likelihood({**node, entry: [["scaled_log_variance"]]}, tensors)
