"""Trained modules as Bayesian networks."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import inducing

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
IMAGES = torch.randn(60, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
# of pseudo-outputs that leave nothing uncertain
PRECISE = 25.0


class Block(nn.Module):
    """As in torchvision's ResNets."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride > 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(2, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)
        self.blocks = nn.Sequential(Block(3, 3), Block(3, 4, 2))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(4, 2)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        return self.fc(torch.flatten(self.pool(self.blocks(x)), 1))


class Functional(nn.Module):
    """Functions instead of modules."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc1, self.fc2 = nn.Conv2d(2, 3, 3, padding="same"), nn.Linear(27, 8), nn.Linear(8, 2)

    def forward(self, x):
        x = functional.max_pool2d(functional.leaky_relu(self.conv(x), 0.2), 2)
        x = torch.tanh(self.fc1(x.view(x.size(0), -1)))
        return self.fc2(functional.dropout(x, 0.5, self.training) + x)


def trained(module, x):
    """The module with statistics and weights that are not initial ones, in evaluation mode."""
    generator = torch.Generator().manual_seed(2)
    module = module.double()
    for parameter in module.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    module.train()(3 * x + 1)
    return module.eval()


def mlp():
    layers = [nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 6, bias=False), nn.ReLU(inplace=True)]
    return trained(nn.Sequential(*layers, nn.Linear(6, 2)), X)


def cnn():
    convolutions = [
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 3, 3, 1, 1),
    ]
    layers = [nn.BatchNorm2d(3), nn.GELU(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(3, 2)]
    return trained(nn.Sequential(nn.Sequential(*convolutions), *layers), IMAGES)


def resnet():
    return trained(ResNet(), IMAGES)


MODULES = {"mlp": (mlp, X), "cnn": (cnn, IMAGES), "resnet": (resnet, IMAGES)}


@pytest.mark.parametrize("layers", ["all", "last"])
@pytest.mark.parametrize("name", MODULES)
def test_functions_with_precise_pseudo_outputs_are_the_module(name, layers):
    make, x = MODULES[name]
    module = make()
    network = inducing.bayesianize(module, x[:40], layers, log_precision=PRECISE)
    torch.testing.assert_close(
        network.sample_functions(3)(x), module(x).detach().expand(3, -1, -1), atol=1e-4, rtol=1e-4
    )


def test_functions_of_torch_become_modules():
    module = trained(Functional(), IMAGES)
    with pytest.warns(UserWarning, match="Dropout is left out: dropout"):
        network = inducing.bayesianize(module, IMAGES, log_precision=PRECISE, boundary="exact")
    kinds = [type(layer).__name__ for layer in network.layers]
    assert kinds == ["Conv2d", "LeakyReLU", "MaxPool2d", "Flatten", "Linear", "Tanh", "Residual", "Linear"]
    outputs = network.sample_functions(2)(IMAGES)
    torch.testing.assert_close(outputs, module(IMAGES).detach().expand(2, -1, -1), atol=1e-4, rtol=1e-4)


def test_the_structure_of_a_residual_network():
    network = inducing.bayesianize(resnet(), IMAGES)
    assert network.layer_names == (
        "layers.0",
        "layers.2.layers.0",
        "layers.2.layers.2",
        "layers.4.layers.0",
        "layers.4.layers.2",
        "layers.4.shortcut.0",
        "layers.8",
    )
    assert len(network.layers[2].shortcut) == 0


def test_the_last_layer_only():
    module = resnet()
    network = inducing.bayesianize(module, IMAGES, "last")
    assert network.layer_names == ("layers.8",)
    learned = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    assert all(name.startswith(("layers.8.", "inducing_points")) for name in learned)
    before = copy.deepcopy(network.layers[0].state_dict())
    inducing.fit(network, inducing.Gaussian(), (IMAGES, IMAGES[:, 0, 0, :2]), num_steps=2, progress=False)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.layers[0].state_dict().items())


@pytest.mark.parametrize("layers", ["all", "last"])
def test_saved_and_loaded(layers, tmp_path):
    network = inducing.bayesianize(resnet(), IMAGES, layers)
    inducing.save(network, tmp_path / "model")
    loaded = inducing.load(tmp_path / "model")
    assert torch.equal(loaded.sample_functions(2)(IMAGES), network.sample_functions(2)(IMAGES))


def test_settings_by_layer():
    prior = {"3": "standard", "5": inducing.ScalePrior()}
    network = inducing.bayesianize(mlp(), X, ["5", "3"], prior=prior, posterior={"3": "factorised"})
    frozen, *_, first, _, last = network.layers
    assert isinstance(frozen, inducing.Deterministic)
    assert (first.prior_spec, last.prior_spec) == (inducing.StandardPrior(), inducing.ScalePrior())
    assert (first.posterior_spec, last.posterior_spec) == (inducing.Factorised(), inducing.GlobalInducing())
    one = inducing.bayesianize(mlp(), X, posterior="factorised->global")
    assert [type(one.layers[i].posterior_spec).__name__ for i in (0, 2, 4)] == ["Factorised"] * 2 + ["GlobalInducing"]


@pytest.mark.parametrize("posterior", [inducing.PointEstimate(), inducing.Factorised(initial_variance=1e-12)], ids=str)
def test_posteriors_without_inducing_points(posterior):
    module = mlp()
    network = inducing.bayesianize(module, posterior=posterior, input_shape=3)
    found = network.sample_functions(1)(X.float())[0]
    torch.testing.assert_close(found, module(X).float().detach(), atol=1e-4, rtol=1e-4)


def test_the_module_is_not_changed():
    module = resnet().train()
    before = copy.deepcopy(module.state_dict())
    inducing.bayesianize(module, IMAGES.float())
    assert module.training
    for name, tensor in module.state_dict().items():
        assert torch.equal(before[name], tensor)
        assert tensor.dtype == before[name].dtype


def test_a_module_that_works_in_place_on_its_input():
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2)).double()
    network = inducing.bayesianize(module, X, log_precision=PRECISE)
    torch.testing.assert_close(network.sample_functions(1)(X)[0], module(X.clone()).detach(), atol=1e-4, rtol=1e-4)


def test_a_single_layer():
    module = nn.Linear(3, 2).double()
    network = inducing.bayesianize(module, X, log_precision=PRECISE)
    torch.testing.assert_close(network.sample_functions(1)(X)[0], module(X).detach(), atol=1e-4, rtol=1e-4)


def test_few_inducing_points():
    with pytest.warns(inducing.DataWarning, match=r"5 inducing points.*: 3 \(8\), 5 \(7\)"):
        inducing.bayesianize(mlp(), X[:5])


def test_what_cannot_become_bayesian_is_frozen_or_refused():
    depthwise = nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)).double()
    with pytest.raises(ValueError, match=r"0 Conv2d.*cannot become Bayesian.*no groups"):
        inducing.bayesianize(depthwise, IMAGES)
    normalised = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    normalised = trained(normalised, X)
    with pytest.raises(ValueError, match=r"0 BatchNorm1d.*cannot be folded"):
        inducing.bayesianize(normalised, X)
    for module, x in ((depthwise, IMAGES), (normalised, X)):
        network = inducing.bayesianize(module, x, "last", log_precision=PRECISE)
        torch.testing.assert_close(network.sample_functions(1)(x)[0], module(x).detach(), atol=1e-4, rtol=1e-4)


def test_names_that_are_unknown():
    with pytest.raises(ValueError, match=r"unknown layer 'head'. Known names: 0, 3, 5"):
        inducing.bayesianize(mlp(), X, ["head"])
    with pytest.raises(ValueError, match=r"unknown layer in prior '0'. Known names: 5"):
        inducing.bayesianize(mlp(), X, "last", prior={"0": "neal"})
    with pytest.raises(ValueError, match='layers must be "all", "last" or a list'):
        inducing.bayesianize(mlp(), X, "first")
    with pytest.raises(ValueError, match=r"no nn.Linear or nn.Conv2d"):
        inducing.bayesianize(nn.ReLU(), X)
    with pytest.raises(TypeError, match=r"module must be a torch.nn.Module"):
        inducing.bayesianize(torch.relu, X)
    with pytest.raises(TypeError, match="LocalInducing posterior; only"):
        inducing.bayesianize(mlp(), X, posterior="local->global")


def test_a_module_whose_function_the_steps_do_not_show():
    module = mlp()
    module[0].register_forward_hook(lambda layer, inputs, outputs: 2 * outputs)
    with pytest.raises(ValueError, match="the result is another function"):
        inducing.bayesianize(module, X)
