from functools import partial

import pytest
import torch
from torch import nn

import inducing
from inducing.linalg.cholesky import FactorisationError
from inducing.linalg.noise import seeded

X = torch.linspace(-1, 1, 30).reshape(10, 3)


def linear(*sizes, posterior="global", **kwargs):
    return inducing.Linear(*sizes, posterior=posterior, **kwargs)


def test_parameters_are_complete_at_birth():
    network = inducing.Network([linear(3, 4), nn.ReLU(), linear(4, 2)], inducing_points=X)
    names = {name for name, _ in network.named_parameters()}
    assert names == {
        "inducing_points",
        *(f"layers.{i}.posterior.{name}" for i in (0, 2) for name in ("pseudo_outputs", "scaled_log_precision")),
    }
    network(X)
    assert names == {name for name, _ in network.named_parameters()}


def test_initial_values_come_from_the_data():
    y = torch.randn(10, 2)
    network = inducing.Network([linear(3, 4), nn.ReLU(), linear(4, 2)], inducing_points=X, inducing_targets=y)
    assert torch.equal(network.inducing_points, X)
    assert torch.equal(network.layers[2].posterior.pseudo_outputs, y)
    assert network.layers[2].posterior.scaled_log_precision.unique().item() == 0.0
    assert network.layers[0].posterior.scaled_log_precision.unique().item() == pytest.approx(-4 / 3)
    # a copy: training does not write into the user's data
    with torch.no_grad():
        network.inducing_points.add_(1.0)
    assert X.min() == -1


def test_labels_become_one_hot():
    labels = torch.arange(10) % 4
    network = inducing.Network([linear(3, 4)], inducing_points=X, inducing_targets=labels)
    assert torch.equal(network.layers[0].posterior.pseudo_outputs, nn.functional.one_hot(labels, 4).float())


def test_fixed_inducing_locations_are_a_buffer():
    network = inducing.Network([linear(3, 1)], inducing_points=X, learn_inducing_locations=False)
    assert "inducing_points" not in dict(network.named_parameters())
    assert "inducing_points" in network.state_dict()


def test_a_number_of_inducing_points_is_drawn():
    network = inducing.Network([linear(3, 1)], num_inducing=500)
    assert network.num_inducing == 500
    assert abs(network.inducing_points.std() - 1) < 0.1


@pytest.mark.parametrize("posterior", ["factorised", "local", "global", "factorised->global"])
def test_a_generator_gives_the_initial_values(posterior):
    """The values of torch's global generator with the same seed, whose state does not change."""
    make = partial(inducing.models.mlp, 3, 1, [4], posterior=posterior, num_inducing=5)
    torch.manual_seed(3)
    expected = make()
    before = torch.get_rng_state()
    found = make(generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("posterior", ["local", "global", "dsvi", "coupled"])
def test_a_generator_gives_the_initial_values_of_processes(posterior):
    make = partial(inducing.models.deep_gp, 2, 1, 2, posterior=posterior, num_inducing=5)
    torch.manual_seed(3)
    expected = make()
    before = torch.get_rng_state()
    found = make(generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_network_takes_the_dtype_of_its_inducing_points():
    network = inducing.Network([linear(3, 1, prior="scale")], inducing_points=X.double())
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float64} == {network.dtype}


def test_shapes_are_walked_through_flatten():
    layers = [nn.Flatten(), linear(12, 5), nn.Tanh(), linear(5, 2)]
    network = inducing.Network(layers, num_inducing=4, input_shape=(3, 2, 2))
    assert network(torch.randn(6, 3, 2, 2), 7).shape == (7, 6, 2)


def test_inducing_images_may_be_smaller_than_the_data():
    generator = torch.Generator().manual_seed(0)
    patches = torch.randn(6, 2, 4, 5, generator=generator, dtype=torch.float64)
    images = torch.randn(3, 2, 8, 9, generator=generator, dtype=torch.float64)
    network = inducing.models.resnet8((2, 8, 9), 3, channels=4, inducing_points=patches, generator=generator)
    assert (network.input_shape, network.inducing_points.shape[1:]) == ((2, 8, 9), (2, 4, 5))
    with pytest.raises(ValueError, match=r"\(B, 2, 8, 9\)"):
        network(patches)
    # the weights depend on the inducing images alone: a network for images of their size has the same ones
    small = inducing.models.resnet8((2, 4, 5), 3, channels=4, inducing_points=patches)
    small.load_state_dict(network.state_dict())
    large, expected = (each.draw(2, torch.Generator().manual_seed(1)) for each in (network, small))
    for ours, theirs in zip(large.layers, expected.layers, strict=True):
        assert torch.equal(ours.variables.values, theirs.variables.values)
        assert torch.equal(ours.kl, theirs.kl)
    assert large(images).shape == (2, 3, 3)
    assert torch.equal(large(images), expected.function(images[None]))


def test_residual_adds_its_branches():
    inner, outer = linear(4, 4, posterior="prior"), linear(3, 4, posterior="prior")
    shortcut = linear(4, 4, posterior="prior")
    network = inducing.Network([outer, inducing.Residual(nn.ReLU(), inner, shortcut=shortcut)])
    assert network.layer_names == ("layers.0", "layers.1.layers.1", "layers.1.shortcut.0")
    draw = network.draw(2)
    first, body, across = (layer.function for layer in draw.layers)
    hidden = first(X[None])
    torch.testing.assert_close(draw(X), body(hidden.relu()) + across(hidden))


def test_residual_sends_inducing_points_through_both_branches():
    network = inducing.Network(
        [linear(3, 4), inducing.Residual(nn.ReLU(), linear(4, 4)), linear(4, 1)], inducing_points=X
    )
    draw = network.draw(5)
    torch.testing.assert_close(draw.inducing, draw(X))


def test_inducing_points_and_data_pass_through_the_same_functions():
    """Draw, then run: the output at the inducing points is the drawn function there, in every layer."""
    network = inducing.models.mlp(3, 2, [5, 4], inducing_points=X)
    draw = network.draw(3)
    torch.testing.assert_close(draw.inducing, draw(X))
    x = X[None]
    bayesian = iter(draw.layers)
    for module, step in zip(network.layers, draw.function.steps, strict=True):
        x = step(x)
        if isinstance(module, inducing.Linear):
            torch.testing.assert_close(next(bayesian).inducing, x)


def test_layers_are_correlated_only_with_global_inducing():
    """log Q of the upper weights depends on the lower draw: at fixed probes, layers 1 and 2 move together."""

    def correlation(posterior):
        torch.manual_seed(0)
        network = inducing.models.mlp(
            1, 1, [1], posterior=posterior, activation=nn.Identity, bias=False, num_inducing=5
        )
        with torch.no_grad():
            for module in network.layers:
                if isinstance(module, inducing.Linear):
                    module.posterior.pseudo_outputs.copy_(torch.ones(5, 1))
                    module.posterior.scaled_log_precision.zero_()
        draw = network.draw(4000, torch.Generator().manual_seed(0))
        first, second = (layer.function(torch.ones(1, 1, 1)).flatten() for layer in draw.layers)
        return torch.corrcoef(torch.stack([first, second]))[0, 1].abs()

    assert correlation(inducing.LocalInducing(num_inducing=5)) < 4 / 4000**0.5
    assert correlation("global") > 0.1


@pytest.mark.parametrize("layers", [2, 5])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("prior", ["neal", "standard", "scale", "spatial-iw", "channel-iw", "kronecker-iw"])
@pytest.mark.filterwarnings("ignore::inducing.JitterWarning")
def test_float32_survives_duplicates_constants_and_scales(scale, layers, prior):
    x = scale * torch.randn(20, 3)
    x[:, 1] = scale
    x[10:] = x[:10]
    network = inducing.models.mlp(3, 1, [20] * (layers - 1), prior=prior, inducing_points=x, inducing_targets=x[:, :1])
    elbo = inducing.ELBO(network, inducing.Gaussian(), num_data=20)
    terms = elbo(x, x[:, :1], 3)
    terms.objective.backward()
    assert torch.isfinite(terms.samples).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in elbo.parameters())


def test_a_failed_factorisation_names_the_layer():
    network = inducing.models.mlp(3, 1, [4], inducing_points=X)
    with torch.no_grad():
        network.layers[2].posterior.scaled_log_precision.fill_(float("nan"))
    with pytest.raises(FactorisationError, match=r"layers\.2 Linear\(4, 1, .*NaN or inf"):
        network(X)


def test_a_layer_inside_a_residual_is_named_too():
    block = inducing.Residual(linear(3, 3))
    network = inducing.Network([block, linear(3, 1)], inducing_points=X)
    with torch.no_grad():
        block.layers[0].posterior.scaled_log_precision.fill_(float("nan"))
    with pytest.raises(FactorisationError, match=r"layers\.0\.layers\.0 Linear"):
        network(X)


LR = inducing.Factorised(local_reparameterisation=True)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: inducing.Network(linear(3, 1)), TypeError, "must be a list of modules"),
        (lambda: inducing.Network([linear(3, 1), nn.ReLU], num_inducing=3), TypeError, "not classes"),
        (lambda: inducing.Network([]), ValueError, "at least one Bayesian layer"),
        (lambda: inducing.Network([nn.ReLU()]), ValueError, "at least one Bayesian layer"),
        (lambda: inducing.Network([linear(3, 1)]), ValueError, r"layers\.0 has a GlobalInducing posterior and needs inducing points.*inducing_points=x\[:100\]"),
        (lambda: inducing.Network([linear(3, 1, posterior="factorised")], inducing_points=X), ValueError, "no layer uses the inducing points"),
        (lambda: inducing.Network([linear(3, 1, posterior="local")], num_inducing=4), ValueError, "no layer uses the inducing points"),
        (lambda: inducing.Network([linear(3, 1)], num_inducing=0), ValueError, "at least 1"),
        (lambda: inducing.Network([linear(3, 1)], inducing_points=X, num_inducing=3), ValueError, "leave one of them out"),
        (lambda: inducing.Network([linear(3, 1)], inducing_points=X[:0]), ValueError, "zero rows"),
        (lambda: inducing.Network([linear(3, 1)], inducing_points=X[0]), ValueError, r"inducing_points must be \(M, features\), got \(3,\)"),
        (lambda: inducing.Network([linear(3, 1)], inducing_points=X, input_shape=4), ValueError, r"inducing_points must be \(M, 4\), got \(10, 3\)"),
        (lambda: inducing.Network([linear(3, 1)], inducing_points=X.long()), TypeError, "floating point"),
        (lambda: inducing.Network([linear(3, 1)], inducing_points=X.half()), TypeError, "float32 or float64"),
        (lambda: inducing.Network([linear(3, 1)], inducing_points=X.numpy()), TypeError, r"torch\.as_tensor"),
        (lambda: inducing.Network([linear(3, 1)], inducing_points=X / 0), ValueError, "NaN or inf in 10 of 10 rows"),
        (lambda: inducing.Network([linear(5, 1)], inducing_points=X), ValueError, r"layers\.0 Linear\(5, 1.*rows of 5 features, got rows of shape \(3,\)"),
        (lambda: inducing.Network([linear(3, 4), linear(5, 1)], inducing_points=X), ValueError, r"layers\.1 Linear\(5, 1.*rows of 5 features"),
        (lambda: inducing.Network([linear(3, 1)], num_inducing=3, input_shape=(3, 2, 2)), ValueError, r"torch\.nn\.Flatten"),
        (lambda: inducing.Network([nn.Flatten(), linear(3, 1)], num_inducing=3), ValueError, "input_shape"),
        (lambda: inducing.models.lenet((1, 8, 8), inducing_points=torch.randn(3, 1, 4, 4)), ValueError, r"expected rows of .* inducing images have shape \(1, 4, 4\)"),
        (lambda: inducing.Network([nn.Flatten(), linear(16, 1)], torch.randn(3, 1, 4, 4), input_shape=(1, 8, 8)), ValueError, "global pooling"),
        (lambda: inducing.models.lenet((1, 8, 8), inducing_points=torch.randn(3, 2, 8, 8)), ValueError, "inducing_points must be"),
        (lambda: inducing.Network([inducing.Conv2d(1, 2, 3, padding=1)], torch.randn(3, 1, 4, 4), input_shape=(1, 8, 8)), ValueError, "global pooling"),
        (lambda: inducing.Network([linear(3, 1)], inducing_points=X, inducing_targets=torch.zeros(10)), ValueError, r"must be \(10, 1\).*y\[:, None\]"),
        (lambda: inducing.Network([linear(3, 1)], inducing_points=X, inducing_targets=torch.zeros(9, 1)), ValueError, r"must be \(10, 1\)"),
        (lambda: inducing.Network([linear(3, 2)], inducing_points=X, inducing_targets=torch.full((10,), 2)), ValueError, r"labels outside 0\.\.1"),
        (lambda: inducing.Network([linear(3, 2), linear(2, 1, posterior="factorised")], inducing_points=X, inducing_targets=X), ValueError, "does not end in one"),
        (lambda: inducing.Network([nn.Sequential(linear(3, 1))], inducing_points=X), ValueError, "contains Bayesian layers"),
        (lambda: inducing.Network([linear(3, 4, posterior=LR), linear(4, 1)], inducing_points=X), ValueError, r"layers\.0 .*local reparameterisation.*below layers\.1"),
        (lambda: inducing.Network([inducing.Residual(linear(3, 4)), linear(4, 1)], inducing_points=X), ValueError, r"same shape, got \(4,\) and \(3,\)"),
    ],
)  # fmt: skip
def test_bad_networks_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_local_reparameterisation_is_fine_above_inducing_layers():
    inducing.Network([linear(3, 4), linear(4, 1, posterior=LR)], inducing_points=X)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.zeros(10, 4), ValueError, r"x must have shape \(B, 3\), got \(10, 4\)"),
        (torch.zeros(3), ValueError, r"x\[None\]"),
        (torch.zeros(10, 3).double(), TypeError, r"x is torch\.float64 but the network is torch\.float32; convert the data, x\.to\(torch\.float32\)"),
        (torch.zeros(10, 3).half(), TypeError, r"x is torch\.float16 .* x\.to\(torch\.float32\)$"),
        (torch.zeros(10, 3).bfloat16(), TypeError, r"x is torch\.bfloat16 .* x\.to\(torch\.float32\)$"),
        (torch.zeros(10, 3).long(), TypeError, "x is torch.int64"),
        (torch.full((10, 3), float("nan")), ValueError, r"x contains NaN or inf in 10 of 10 rows \(rows 0, 1, 2, 3, 4, \.\.\.\)"),
        (torch.zeros(10, 3).numpy(), TypeError, "x must be a torch.Tensor, got ndarray"),
    ],
)  # fmt: skip
def test_bad_inputs_are_refused(x, error, message):
    network = inducing.models.mlp(3, 1, num_inducing=4)
    with pytest.raises(error, match=message):
        network(x)
    with pytest.raises(error, match=message):
        inducing.predict(network, inducing.Gaussian(), x)
    with pytest.raises(error, match=message):
        inducing.ELBO(network, inducing.Gaussian(), 10)(x, torch.zeros(10, 1))
    with pytest.raises(error, match=message):
        inducing.fit(network, inducing.Gaussian(), (x, torch.zeros(len(x), 1)), num_steps=1, progress=False)


def test_the_number_of_samples_is_checked():
    with pytest.raises(ValueError, match="num_samples must be at least 1"):
        inducing.models.mlp(3, 1, num_inducing=4).draw(0)


def test_a_draw_can_have_its_kl_in_closed_form():
    network = inducing.models.mlp(3, 1, [4], posterior=["global", inducing.Factorised(kl="sample")], inducing_points=X)

    def kl(count=1, **kind):
        return torch.stack([layer.kl for layer in network.draw(count, torch.Generator().manual_seed(0), **kind).layers])

    sampled, closed, first = kl(), kl(closed_form_kl=True), kl(50, closed_form_kl=True)[0]
    assert not torch.equal(sampled, closed)
    assert first.std() < 1e-4, "the first layer's inputs are the same in every sample"
    many = kl(20_000)
    standard_error = many.std(1) / 20_000**0.5
    assert abs((many.mean(1) - closed[:, 0]) / standard_error)[0] < 4
    assert torch.equal(sampled, kl(closed_form_kl=False))


def test_sampled_kls_are_kept_if_all_layers_are_regressions():
    network = inducing.models.mlp(3, 1, [4], posterior=["local", "global"], inducing_points=X)
    kls = [network.draw(1, seeded(seed, "kl"), closed_form_kl=True).layers[0].kl for seed in range(2)]
    assert kls[0] != kls[1]


def test_a_network_is_assembled_from_the_functions_of_its_layers():
    block = inducing.Residual(nn.ReLU(), inducing.Linear(4, 4), shortcut=inducing.Linear(4, 4, bias=False))
    network = inducing.Network([inducing.Linear(3, 4), block, nn.Tanh(), inducing.Linear(4, 2)], num_inducing=5)
    x = torch.randn(6, 3)
    draw = network.draw(7)
    functions = [layer.function for layer in draw.layers]
    assert torch.equal(network.assemble(functions)(x[None]), draw(x))
    with pytest.raises(ValueError, match="3 functions for 4 Bayesian layers"):
        network.assemble(functions[:3])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(dtype):
    network = inducing.models.mlp(3, 1, [5], num_inducing=5).to(dtype)
    x, y = torch.zeros(10, 3), torch.zeros(10, 1)
    uses = [
        lambda: network.draw(2),
        lambda: network(x.to(dtype)),
        lambda: inducing.fit(network, inducing.Gaussian(), (x, y), num_steps=1, progress=False),
        lambda: inducing.predict(network, inducing.Gaussian(), x),
    ]
    for use in uses:
        with pytest.raises(TypeError, match=r"too few digits.*network.float\(\).*torch.autocast"):
            use()


def test_a_network_that_is_refused_leaves_its_layers_free():
    first = inducing.Linear(3, 4)
    with pytest.raises(ValueError, match="expected"):
        inducing.Network([first, nn.ReLU(), inducing.Linear(5, 1)], num_inducing=3)
    network = inducing.Network([first, nn.ReLU(), inducing.Linear(4, 1)], num_inducing=3)
    # a layer of another network is still refused, and stays there
    with pytest.raises(RuntimeError, match="already part of a network"):
        inducing.Network([first, inducing.Linear(4, 1)], num_inducing=3)
    assert network(torch.zeros(2, 3)).shape == (1, 2, 1)
