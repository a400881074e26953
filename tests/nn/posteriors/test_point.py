import torch
from torch import nn
from torch.nn import functional

import inducing
from inducing import PointEstimate


def test_a_plain_network_is_the_usual_one():
    """The same outputs and the same gradients as with torch's own layers."""
    plain = PointEstimate()
    layers = [inducing.Conv2d(3, 4, 3, padding=1, posterior=plain), nn.ReLU(), nn.Flatten()]
    network = inducing.Network([*layers, inducing.Linear(4 * 36, 5, posterior=plain)], input_shape=(3, 6, 6)).double()
    x = torch.randn(7, 3, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(7) % 5
    terms = inducing.ELBO(network, inducing.Categorical(), 7)(x, y, 1)
    assert terms.kl.sum() == 0

    kernel, matrix = (weights.scale * weights.scaled for weights in (layers[0].posterior, network.layers[-1].posterior))
    hidden = functional.conv2d(x, kernel[:-1].T.unflatten(1, (3, 3, 3)), kernel[-1], padding=1).relu().flatten(1)
    loss = functional.cross_entropy(hidden @ matrix[:-1] + matrix[-1], y, reduction="sum")
    torch.testing.assert_close(-terms.elbo.mean(), loss)
    parameters = [layers[0].posterior.scaled, network.layers[-1].posterior.scaled]
    ours, theirs = (torch.autograd.grad(each, parameters) for each in (-terms.elbo.mean(), loss))
    torch.testing.assert_close(ours, theirs)


def test_its_functions_are_all_the_same():
    layers = [
        inducing.Linear(2, 3, posterior=PointEstimate()),
        nn.ReLU(),
        inducing.Linear(3, 1, posterior=PointEstimate()),
    ]
    outputs = inducing.Network(layers, input_shape=(2,)).sample_functions(4, 0)(torch.randn(5, 2))
    assert outputs.std(0).max() == 0
    assert outputs[0].std() > 0
