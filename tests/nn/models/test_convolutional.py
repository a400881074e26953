import pytest
import torch
from torch import nn

import inducing

MODELS = {"lenet": ((1, 28, 28), 4), "resnet8": ((3, 32, 32), 8), "resnet18": ((3, 32, 32), 21)}
POSTERIORS = ["factorised", "local", "global", "prior->global", "factorised->global", "global->factorised"]


def make(name, posterior="global", channels=2, **changes):
    shape, _ = MODELS[name]
    x, y = torch.randn(5, *shape), torch.arange(5)
    return getattr(inducing.models, name)(
        channels=channels, posterior=posterior, inducing_points=x, inducing_targets=y, **changes
    )


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("name", MODELS)
def test_every_mixture_of_posteriors_trains(name, posterior):
    network = make(name, posterior)
    x, y = torch.randn(3, *network.input_shape), torch.tensor([0, 4, 9])
    terms = inducing.ELBO(network, inducing.Categorical(), 100)(x, y)
    (-terms.objective).backward()
    assert terms.kl.shape == (MODELS[name][1], 1)
    assert torch.isfinite(terms.elbo)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in network.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_a_list_has_a_posterior_for_each_layer_in_the_order_of_drawing(name):
    count = MODELS[name][1]
    chosen = ["global" if index % 3 else "factorised" for index in range(count)]
    network = make(name, chosen)
    drawn = [type(layer.posterior_spec).__name__ for _, layer in network.layers.bayesian_layers()]
    assert drawn == [type(inducing.nn.posteriors.as_posterior(each)).__name__ for each in chosen]
    with pytest.raises(ValueError, match=f"3 posteriors for {count} layers"):
        make(name, ["global"] * 3)


def test_lenet_is_the_papers():
    network = inducing.models.lenet(posterior="factorised")
    shapes = [tuple(layer.posterior.scaled_mean.shape) for _, layer in network.layers.bayesian_layers()]
    assert shapes == [(10, 64), (577, 64), (577, 64), (3137, 10)]
    assert sum(isinstance(module, nn.MaxPool2d) for module in network.modules()) == 2


def test_resnet8_is_the_papers():
    network = inducing.models.resnet8(posterior="factorised")
    shapes = [tuple(layer.posterior.scaled_mean.shape) for _, layer in network.layers.bayesian_layers()]
    assert shapes == [(28, 32)] + [(289, 32)] * 6 + [(33, 10)]


def test_resnet18_has_as_many_weights_as_the_usual_one():
    network = inducing.models.resnet18(posterior="factorised")
    weights = sum(layer.posterior.scaled_mean.numel() for _, layer in network.layers.bayesian_layers())
    # torchvision's, with a 3 x 3 first convolution and 10 classes, has 11,164,362 weights without normalisation;
    # here each of the 4,800 channels has a bias
    assert weights == 11_164_362 + 4_800


def test_only_resnet18_normalises_by_default_and_only_with_inducing_points():
    def count(network):
        return sum(isinstance(module, inducing.InducingNorm) for module in network.modules())

    assert count(make("resnet18")) == count(make("resnet18", "factorised->global")) == 20
    assert count(make("resnet18", "factorised")) == count(make("resnet8")) == count(make("lenet")) == 0
    assert count(make("lenet", normalise=True)) == 3
    assert count(make("resnet18", normalise=False)) == 0


@pytest.mark.parametrize("name", MODELS)
def test_a_drawn_network_is_a_function_of_each_row(name):
    functions = make(name).sample_functions(2)
    x = torch.randn(4, *MODELS[name][0])
    torch.testing.assert_close(functions(x)[:, 2:3], functions(x[2:3]), rtol=1e-4, atol=1e-4)


def test_other_image_sizes():
    network = inducing.models.lenet((3, 13, 10), 4, 2, num_inducing=3, boundary="exact")
    assert network(torch.randn(2, 3, 13, 10)).shape == (1, 2, 4)


@pytest.mark.parametrize("make", [inducing.models.lenet, inducing.models.resnet8, inducing.models.resnet18])
def test_an_image_has_three_axes(make):
    with pytest.raises(ValueError, match=r"input_shape must be \(channels, height, width\) .* got 1"):
        make(1, 10)
