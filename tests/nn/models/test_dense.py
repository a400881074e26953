import inspect

import pytest
import torch
from torch import nn

import inducing

X = torch.randn(12, 3)


@pytest.mark.parametrize(
    "posterior", ["factorised", "local", "global", "prior", "factorised->global", "prior->global", "global->factorised"]
)
def test_all_posteriors_have_the_same_call(posterior):
    network = inducing.models.mlp(3, 2, posterior=posterior, inducing_points=X, inducing_targets=X[:, :2])
    assert network(X, 4).shape == (4, 12, 2)


def test_the_architecture():
    network = inducing.models.mlp(3, 2, [7, 5], activation=nn.Tanh, bias=False, num_inducing=4)
    kinds = [type(module) for module in network.layers]
    assert kinds == [inducing.Linear, nn.Tanh, inducing.Linear, nn.Tanh, inducing.Linear]
    sizes = [(m.in_features, m.out_features, m.bias) for m in network.layers if isinstance(m, inducing.Linear)]
    assert sizes == [(3, 7, False), (7, 5, False), (5, 2, False)]


@pytest.mark.parametrize("posterior", ["factorised", "local", "global", "prior"])
def test_the_dtype_is_that_of_the_inducing_points(posterior):
    assert inducing.models.mlp(3, 1, posterior=posterior, inducing_points=X.double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"hidden": 50}, r"hidden=\[50, 50\]"), ({"activation": "relu"}, r"activation=torch\.nn\.Tanh")],
)
def test_common_mistakes_are_refused(arguments, message):
    with pytest.raises(TypeError, match=message):
        inducing.models.mlp(3, 1, **arguments)
    with pytest.raises(ValueError, match="each width in hidden must be at least 1, got 0"):
        inducing.models.mlp(3, 1, [50, 0])


def test_no_hidden_layer_is_linear_regression():
    assert len(inducing.models.mlp(3, 2, [], num_inducing=4).layers) == 1


def test_local_layers_take_as_many_points_as_global_ones_would():
    network = inducing.models.mlp(3, 1, [5], posterior="local", num_inducing=9)
    assert {m.posterior.inducing_inputs.shape[0] for m in network.layers if isinstance(m, inducing.Linear)} == {9}
    own = inducing.models.mlp(3, 1, [5], posterior=inducing.LocalInducing(num_inducing=2), num_inducing=9)
    assert own.layers[0].posterior.inducing_inputs.shape[0] == 2


def test_a_list_of_posteriors():
    network = inducing.models.mlp(3, 1, [5], posterior=["prior", inducing.GlobalInducing("full")], num_inducing=9)
    specs = [m.posterior_spec for m in network.layers if isinstance(m, inducing.Linear)]
    assert specs == [inducing.PriorOnly(), inducing.GlobalInducing("full")]
    with pytest.raises(ValueError, match="3 posteriors for 2 layers"):
        inducing.models.mlp(3, 1, [5], posterior=["prior"] * 3)


@pytest.mark.parametrize("mean", ["identity", "zero"])
def test_the_mean_function_of_a_deep_gp_is_that_of_its_hidden_layers(mean):
    network = inducing.models.deep_gp(2, 1, 3, mean=mean, num_inducing=5)
    assert [layer.mean for layer in network.layers] == [mean, mean, "zero"]


@pytest.mark.parametrize("name", inducing.models.__all__)
def test_signatures_show_the_arguments_for_inducing_points(name):
    found = inspect.signature(getattr(inducing.models, name)).parameters
    shared = {name: each.default for name, each in list(found.items())[-5:]}
    wanted = {"inducing_points": None, "inducing_targets": None, "num_inducing": None}
    assert shared == wanted | {"learn_inducing_locations": True, "generator": None}
    assert not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in found.values())


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'inducing_point'"):
        inducing.models.mlp(3, 1, inducing_point=X)
