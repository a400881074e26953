"""Frozen modules in a network."""

import pytest
import torch
from torch import nn

import inducing

X = torch.linspace(-2, 2, 60, dtype=torch.float64).sin().reshape(20, 3)


def body():
    module = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5))
    module.train()(torch.linspace(-1, 2, 60).reshape(20, 3))
    return module


def network(frozen, x=X):
    return inducing.Network([inducing.Deterministic(frozen), inducing.Linear(8, 1)], inducing_points=x[:9])


def test_the_module_runs_in_evaluation_mode_and_is_not_trained():
    given = body()
    model = network(given)
    before = [tensor.clone() for tensor in model.layers[0].state_dict().values()]
    inducing.fit(model, inducing.Gaussian(), (X, X[:, :1]), num_steps=3, progress=False)
    assert all(map(torch.equal, before, model.layers[0].state_dict().values()))
    draw = model.train().draw(2)
    torch.testing.assert_close(draw.function.steps[0](X[None])[0], given.double().eval()(X))
    torch.testing.assert_close(draw(X), draw(X), rtol=0, atol=0)
    assert not any(parameter.requires_grad for parameter in model.layers[0].parameters())


def test_the_given_module_is_copied():
    given = body()
    network(given)
    assert given.training
    assert given[0].weight.requires_grad
    assert given[0].weight.dtype == torch.float32


def test_without_inducing_points_it_has_the_default_dtype():
    layers = [inducing.Deterministic(body().double()), inducing.Linear(8, 1)]
    assert inducing.Network(layers, num_inducing=5, input_shape=3)(X.float()).dtype == torch.float32


def test_convolutions_above_bayesian_layers():
    frozen = nn.Sequential(
        nn.Conv2d(2, 3, 3, bias=False), nn.GroupNorm(1, 3), nn.PReLU(), nn.Flatten(), nn.LayerNorm(12)
    )
    images = torch.linspace(-2, 2, 96).cos().reshape(6, 1, 4, 4)
    layers = [inducing.Conv2d(1, 2, 3, padding=1), inducing.Deterministic(frozen), inducing.Linear(12, 1)]
    model = inducing.Network(layers, inducing_points=images)
    assert model(images, num_samples=2).shape == (2, 6, 1)
    (above,) = (draw.inducing for draw in model.draw(2).layers[1:])
    assert above.shape == (2, 6, 1)


@pytest.mark.parametrize("kind", ["mlp", "convolutions"])
def test_networks_and_functions_are_saved(kind, tmp_path):
    if kind == "mlp":
        x, model = X, network(body())
    else:
        frozen = nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, bias=False), nn.BatchNorm2d(3), nn.PReLU(), nn.Flatten())
        frozen.append(nn.LayerNorm(3)).append(nn.Unflatten(1, (3, 1, 1))).append(nn.GroupNorm(1, 3)).append(
            nn.Flatten()
        )
        x = torch.linspace(-2, 2, 96).cos().reshape(6, 1, 4, 4)
        model = inducing.Network([inducing.Deterministic(frozen), inducing.Linear(3, 1)], inducing_points=x)
    functions = model.sample_functions(2)
    inducing.save((model, functions), tmp_path / "model")
    state = torch.get_rng_state()
    loaded, loaded_functions = inducing.load(tmp_path / "model")
    assert torch.equal(state, torch.get_rng_state())
    assert repr(loaded) == repr(model)
    for each in (loaded.sample_functions(2), loaded_functions):
        assert torch.equal(each(x), functions(x))
    frozen_names = [name for name, parameter in loaded.named_parameters() if not parameter.requires_grad]
    assert frozen_names == [name for name, _ in model.named_parameters() if "body" in name]
    inducing.save((loaded, loaded_functions), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


class Squared(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 8)

    def forward(self, x):
        return self.linear(x).square()


class Centred(nn.Linear):
    def forward(self, x):
        return super().forward(x - x.mean(0))


def test_a_module_of_unknown_class_runs_and_is_not_saved(tmp_path):
    model = network(Squared())
    assert model(X).shape == (1, 20, 1)
    with pytest.raises(ValueError, match=r"(?s)layers.0.body.*cannot be saved.*inducing.register\(Squared\)"):
        inducing.save(model, tmp_path / "model")


def test_what_is_refused():
    with pytest.raises(ValueError, match="mixes the rows"):
        network(Centred(3, 8))
    with pytest.raises(ValueError, match="contains layers of inducing"):
        network(nn.Sequential(inducing.Linear(3, 8)))
    with pytest.raises(TypeError, match="takes a module"):
        inducing.Deterministic(torch.relu)
    with pytest.raises(ValueError, match="at least one Bayesian layer"):
        inducing.Network([inducing.Deterministic(body())], input_shape=3)
    with pytest.raises(ValueError, match=r"inducing.Deterministic\(module\) keeps it frozen"):
        inducing.Network([nn.Linear(3, 3), inducing.Linear(3, 1)], num_inducing=4, input_shape=3)
