"""Roll-back: bad steps are undone and repeated with smaller steps."""

import re
import warnings

import pytest
import torch

import inducing
from inducing.errors import FactorisationError

X = torch.linspace(-1, 1, 20)[:, None]
Y = X.sin()


def network(seed=0):
    torch.manual_seed(seed)
    return inducing.models.mlp(1, 1, [5], num_inducing=6)


def fit(net, **kwargs):
    return inducing.fit(net, inducing.Gaussian(), (X, Y), progress=False, **{"num_steps": 12, **kwargs})


class Sabotage:
    """Spoil gradients, or fail, at certain calls of the backward pass of one parameter."""

    def __init__(self, parameter, calls, error=None):
        self.count, self.calls, self.error = 0, calls, error
        parameter.register_hook(self)

    def __call__(self, gradient):
        self.count += 1
        if self.count not in self.calls:
            return gradient
        if self.error is not None:
            raise self.error
        return torch.full_like(gradient, float("nan"))


@pytest.mark.parametrize(
    "error", [None, FactorisationError("layers.2 Linear: cannot factorise")], ids=["NaN", "Cholesky"]
)
def test_bad_steps_are_survived(error):
    net = network()
    Sabotage(net.layers[2].posterior.pseudo_outputs, {5, 9}, error)
    message = (
        "cannot factorise" if error else r"gradient of network\.layers\.2\.posterior\.pseudo_outputs is not finite"
    )
    with pytest.warns(inducing.RollBackWarning) as caught:
        history = fit(net)
    first = re.compile(rf"step 5: .*{message}.*repeated with 0\.5 of its size", re.DOTALL)
    assert first.match(str(caught[0].message))
    assert "step 7" in str(caught[1].message)
    assert [record.step for record in history.records] == list(range(1, 13))
    assert all(torch.isfinite(parameter).all() for parameter in net.parameters())


def test_the_undone_step_is_taken_at_half_its_size_and_the_damping_wears_off():
    net = network()
    Sabotage(net.inducing_points, {4})
    with pytest.warns(inducing.RollBackWarning):
        rates = [record.learning_rate for record in fit(net, schedule="constant", learning_rate=0.01).records]
    assert rates[:2] == [0.01, 0.01]
    assert rates[2] == rates[3] == 0.005
    assert rates[4:6] == pytest.approx([0.005, 0.0055])
    assert rates[-1] == pytest.approx(0.01, rel=0.2)


def test_after_repeated_failure_the_last_good_state_is_kept():
    net = network()
    states = []
    Sabotage(net.layers[2].posterior.pseudo_outputs, set(range(6, 100, 2)))

    def remember(record):
        states.append({name: parameter.detach().clone() for name, parameter in net.named_parameters()})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", inducing.RollBackWarning)
        with pytest.raises(inducing.DivergenceError, match=r"step 6, after 10 roll-backs") as caught:
            fit(net, callbacks=[remember])
    assert len(caught.value.history) == 4
    assert "layers.2" in str(caught.value)
    assert all(torch.equal(parameter, states[3][name]) for name, parameter in net.named_parameters())
    assert all(torch.isfinite(parameter).all() for parameter in net.parameters())


def test_a_run_with_a_failure_is_repeatable():
    def run():
        net = network()
        Sabotage(net.inducing_points, {4})
        with pytest.warns(inducing.RollBackWarning):
            return fit(net).elbo

    assert run() == run()


def test_a_first_step_that_fails_says_so_at_once():
    net = network()
    with torch.no_grad():
        net.layers[0].posterior.pseudo_outputs.fill_(float("nan"))
    with pytest.raises(inducing.DivergenceError, match="step 1: "):
        fit(net)


def test_failures_in_a_row_go_back_one_step_only():
    """An evaluation that is not repeatable may fail at the step that is taken again, too."""
    net = network()
    Sabotage(net.inducing_points, {5, 6, 7})
    steps = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", inducing.RollBackWarning)
        history = fit(net, callbacks=[lambda record: steps.append(record.step)])
    assert [record.step for record in history.records] == list(range(1, 13))
    assert steps == [1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12]


def test_a_first_step_that_fails_once_cannot_be_undone():
    net = network()
    Sabotage(net.inducing_points, {2, 3})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", inducing.RollBackWarning)
        assert len(fit(net)) == 12
