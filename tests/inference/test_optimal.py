import pytest
import torch

import inducing
from inducing.inference.optimal import start_optimally

X = torch.randn(40, 3)
Y = torch.randn(40, 2)


def network(precision="shared", rows=40, targets=True, posterior=None):
    return inducing.models.mlp(
        3,
        2,
        [5],
        posterior=posterior or inducing.GlobalInducing(precision),
        inducing_points=X[:rows],
        inducing_targets=Y[:rows] if targets else None,
    )


def log_precision(net):
    return 2 * net.layers[2].posterior.precision_root().log().detach()


@pytest.mark.parametrize("precision", ["shared", "per_output"])
def test_the_precision_is_that_of_the_noise(precision):
    net = network(precision)
    assert start_optimally(net, inducing.Gaussian([0.1, 0.1]), num_data=40)
    expected = torch.full_like(log_precision(net), -torch.tensor(0.1).log().item())
    torch.testing.assert_close(log_precision(net), expected)


def test_each_output_has_its_own_noise():
    net = network("per_output")
    start_optimally(net, inducing.Gaussian([0.1, 0.5]), num_data=40)
    torch.testing.assert_close(log_precision(net)[:, 0], -torch.tensor([0.1, 0.5]).log())


def test_a_point_stands_for_several_data():
    net = network(rows=10)
    start_optimally(net, inducing.Gaussian(1.0), num_data=40)
    torch.testing.assert_close(log_precision(net)[0, 0], torch.tensor(4.0).log())


@pytest.mark.parametrize(
    ("net", "likelihood"),
    [
        (lambda: network(targets=False), inducing.Gaussian()),
        (lambda: network(), inducing.Categorical()),
        (lambda: network(posterior="global->factorised"), inducing.Gaussian()),
        (lambda: network(posterior=inducing.GlobalInducing(log_precision=-1.0)), inducing.Gaussian()),
    ],
)
def test_others_are_left_alone(net, likelihood):
    made = net()
    before = {name: parameter.clone() for name, parameter in made.named_parameters()}
    assert not start_optimally(made, likelihood, 40)
    assert all(torch.equal(before[name], parameter) for name, parameter in made.named_parameters())


def test_a_trained_network_is_not_set_back():
    net = network()
    inducing.fit(net, inducing.Gaussian(), (X, Y), num_steps=3, progress=False)
    trained = log_precision(net).clone()
    inducing.fit(net, inducing.Gaussian(), (X, Y), num_steps=1, learning_rate=1e-12, progress=False)
    torch.testing.assert_close(log_precision(net), trained)


def test_the_start_is_the_optimum_for_one_layer():
    """With all data as inducing points the first ELBO of linear regression is the evidence, before any step."""
    net = inducing.models.mlp(3, 1, [], inducing_points=X, inducing_targets=Y[:, :1])
    likelihood = inducing.Gaussian(0.5, learn_variance=False)
    start_optimally(net, likelihood, 40)
    samples = inducing.evaluate(net, likelihood, (X, Y[:, :1]), 50).samples
    assert samples.std() < 1e-3


def test_a_precision_of_the_user_is_kept_also_that_of_the_paper():
    x, y = torch.randn(20, 2), torch.randn(20, 1)
    for given, changed in ((None, True), (0.0, False), (1.0, False)):
        posterior = inducing.GlobalInducing(log_precision=given)
        network = inducing.models.mlp(2, 1, [3], posterior=posterior, inducing_points=x, inducing_targets=y)
        assert start_optimally(network, inducing.Gaussian(), 20) is changed


def test_a_fit_that_is_refused_leaves_the_weights_of_the_rows():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(10, 2, generator=generator)
    points = {"inducing_points": x, "inducing_targets": x[:, :1], "learn_inducing_locations": False}
    network = inducing.models.mlp(2, 1, [3], posterior="global->optimal", **points)
    data = (x, x[:, :1], torch.arange(1.0, 11))
    with pytest.raises(ValueError, match="validation has no rows"):
        inducing.fit(network, inducing.Gaussian(), data, num_steps=1, progress=False, validation=(x[:0], x[:0, :1]))
    assert (network.optimal_last.row_weights == 1).all()
    inducing.fit(network, inducing.Gaussian(), data, num_steps=1, progress=False)
    assert (network.optimal_last.row_weights != 1).any()
