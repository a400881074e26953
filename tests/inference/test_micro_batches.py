import pytest
import torch
from torch import nn

import inducing
from inducing.linalg import noise

# the last piece is smaller than the others
ROWS, PIECE = 23, 6


def data(*shape, outputs=1):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, *shape, dtype=torch.float64, generator=generator)
    return x, torch.randn(ROWS, outputs, dtype=torch.float64, generator=generator)


def dense(posterior="global", **settings):
    x, y = data(3)
    points = {"inducing_points": x[:8], "inducing_targets": y[:8], **settings}
    return inducing.models.mlp(3, 1, [6, 6], posterior=posterior, **points), inducing.Gaussian().double(), x, y


def exact():
    x, y = data(3)
    points = {"inducing_points": x, "inducing_targets": y, "learn_inducing_locations": False}
    return inducing.models.mlp(3, 1, [6], posterior="global->optimal", **points), inducing.Gaussian().double(), x, y


def convolution():
    x, _ = data(1, 6, 6)
    residual = inducing.Residual(nn.ReLU(), inducing.Conv2d(4, 4, 3, padding=1))
    layers = [
        inducing.Conv2d(1, 4, 3, padding=1),
        inducing.InducingNorm(),
        residual,
        nn.Flatten(),
        inducing.Linear(144, 3),
    ]
    labels = torch.arange(ROWS) % 3
    network = inducing.Network(layers, inducing_points=x[:5], inducing_targets=labels[:5])
    return network, inducing.Categorical(), x, labels


def deep_gp(posterior):
    x, y = data(3)
    # a short lengthscale: the matrices are well conditioned, so that rounding stays below what is compared
    kernel = inducing.kernels.SquaredExponential(lengthscale=0.7)
    network = inducing.models.deep_gp(3, 2, 2, kernel=kernel, posterior=posterior, inducing_points=x[:8])
    return network, inducing.HeteroscedasticGaussian().double(), x, y


CASES = {
    "global": dense,
    "per output": lambda: dense(inducing.GlobalInducing("per_output")),
    "factorised": lambda: dense("factorised", inducing_points=None, inducing_targets=None),
    "scale prior": lambda: dense("local", prior="scale"),
    "optimal": exact,
    "convolution": convolution,
    "deep GP, global": lambda: deep_gp("global"),
    "deep GP, DSVI": lambda: deep_gp("dsvi"),
}


def gradients(name, micro_batch_size, weights=None):
    torch.manual_seed(0)
    network, likelihood, x, y = CASES[name]()
    elbo = inducing.ELBO(network.double(), likelihood, num_data=100)
    terms = elbo(x, y, 3, 0.7, torch.Generator().manual_seed(1), weights=weights, micro_batch_size=micro_batch_size)
    terms.objective.backward()
    return terms, {name: parameter.grad for name, parameter in elbo.named_parameters()}


@pytest.fixture
def no_marginal_noise(monkeypatch):
    """Gaussian process layers draw noise for each row when they are run, in an order that depends on the pieces."""
    monkeypatch.setattr("inducing.nn.gp.functions.standard_normal", lambda *a, **k: 0 * noise.standard_normal(*a, **k))


@pytest.mark.parametrize("name", CASES)
def test_terms_and_gradients_are_those_of_the_whole_batch(name, no_marginal_noise):
    for weights in (None, torch.rand(ROWS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))):
        whole, expected = gradients(name, None, weights)
        pieces, found = gradients(name, PIECE, weights)
        torch.testing.assert_close(pieces.samples, whole.samples, rtol=1e-12, atol=1e-10)
        assert found.keys() == expected.keys()
        for key, gradient in expected.items():
            scale = gradient.abs().max().item()
            torch.testing.assert_close(found[key], gradient, rtol=0, atol=1e-10 * max(scale, 1.0), msg=key)


@pytest.mark.parametrize("posterior", ["global", "dsvi"])
def test_marginal_noise_of_pieces_gives_the_gradient_of_their_sum(posterior):
    torch.manual_seed(0)
    network, likelihood, x, y = deep_gp(posterior)
    elbo = inducing.ELBO(network.double(), likelihood, num_data=ROWS)
    parameters = list(elbo.parameters())
    found = torch.autograd.grad(
        elbo(x, y, 3, generator=torch.Generator().manual_seed(1), micro_batch_size=PIECE).objective, parameters
    )
    draw = network.draw(3, torch.Generator().manual_seed(1), likelihood=likelihood)
    total = sum(elbo.log_likelihood(draw, *piece) for piece in zip(x.split(PIECE), y.split(PIECE), strict=True))
    expected = torch.autograd.grad(elbo.terms(draw, total).objective, parameters)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_training_does_not_depend_on_the_pieces():
    histories = []
    for size in (None, PIECE, ROWS):
        torch.manual_seed(0)
        network, likelihood, x, y = dense()
        history = inducing.fit(
            network, likelihood, (x, y), num_steps=10, num_samples=2, progress=False, micro_batch_size=size
        )
        histories.append([record.elbo for record in history])
    assert histories[1] == pytest.approx(histories[0], rel=1e-9)
    assert histories[2] == histories[0]


def test_the_graph_of_a_piece_is_gone_before_the_next_one(monkeypatch):
    """The largest number of rows whose activations are held for a backward pass."""
    torch.manual_seed(0)
    network, likelihood, x, y = dense()
    held, most = 0, 0

    def pack(tensor):
        nonlocal held, most
        held += tensor.numel()
        most = max(most, held)
        return Held(tensor)

    class Held:
        def __init__(self, tensor):
            self.tensor = tensor

        def __del__(self):
            nonlocal held
            held -= self.tensor.numel()

    sizes = {}
    x, y = x.repeat(40, 1), y.repeat(40, 1)
    for size in (None, 46):
        held = most = 0
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed.tensor):
            inducing.ELBO(network, likelihood, len(x))(x, y, 5, micro_batch_size=size).objective.backward()
        sizes[size] = most
    assert sizes[46] < sizes[None] / 5


def test_samples_must_have_equal_weights():
    network, likelihood, x, y = dense()
    terms = inducing.ELBO(network, likelihood, ROWS)(x, y, 3, micro_batch_size=PIECE)
    with pytest.raises(RuntimeError, match="same weight"):
        terms.samples[0].backward()


def test_gradients_of_the_data_are_refused():
    network, likelihood, x, y = dense()
    with pytest.raises(ValueError, match="require gradients"):
        inducing.ELBO(network, likelihood, ROWS)(x.requires_grad_(), y, 3, micro_batch_size=PIECE)


@pytest.mark.parametrize("size", [0, -1, 2.5])
def test_sizes_that_are_refused(size):
    network, likelihood, x, y = dense()
    with pytest.raises((ValueError, TypeError), match=r"micro_batch_size|integer"):
        inducing.fit(network, likelihood, (x, y), num_steps=1, micro_batch_size=size, progress=False)


def test_without_gradients():
    network, likelihood, x, y = dense()
    with torch.no_grad():
        whole, pieces = (
            inducing.ELBO(network, likelihood, ROWS)(
                x, y, 2, generator=torch.Generator().manual_seed(0), micro_batch_size=size
            )
            for size in (None, PIECE)
        )
    torch.testing.assert_close(whole.elbo, pieces.elbo)
