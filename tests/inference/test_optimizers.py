"""Optimisers of the user."""

import warnings

import pytest
import torch

import inducing
from inducing.inference.state import TrainingState

X = torch.linspace(-1, 1, 20)[:, None]
Y = X.sin() + 0.1 * torch.linspace(-3, 3, 20).cos()[:, None]


def train(optimizer=None, network=None, **settings):
    torch.manual_seed(0)
    network = network or inducing.models.mlp(1, 1, [5], inducing_points=X[:6])
    settings = {"num_steps": 6, "progress": False, **settings}
    return inducing.fit(network, inducing.Gaussian(), (X, Y), optimizer=optimizer, **settings), network


def test_adam_as_an_optimizer_of_ones_own_is_the_default():
    ours, network = train(learning_rate=0.02)
    theirs, other = train(lambda parameters: torch.optim.Adam(parameters, lr=0.02, fused=True))
    assert theirs.elbo == ours.elbo
    assert [record.learning_rate for record in theirs] == [record.learning_rate for record in ours]
    assert all(map(torch.equal, network.parameters(), other.parameters()))


@pytest.mark.parametrize("cls", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad, torch.optim.RMSprop])
def test_the_elbo_rises(cls):
    # a learning rate that suits all of them
    history, _ = train(lambda parameters: cls(parameters, lr=0.02), num_steps=100)
    assert sum(history.elbo[-20:]) / 20 > sum(history.elbo[:20]) / 20 + 0.1


def test_groups_keep_the_ratio_of_their_learning_rates():
    made = []

    def make(parameters):
        groups = [{"params": parameters[:2], "lr": 0.04}, {"params": parameters[2:], "lr": 0.01}]
        made.append(torch.optim.SGD(groups))
        return made[0]

    history, _ = train(make)
    first, second = made[0].param_groups
    assert history[0].learning_rate == 0.04
    assert first["lr"] == history[-1].learning_rate == pytest.approx(4 * second["lr"])
    assert history[-1].learning_rate < 0.04


def test_steps_are_undone_with_the_state_of_the_optimizer():
    """A step whose gradient is not finite is repeated at half the size, from the momentum before it."""
    made = []

    def make(parameters):
        made.append(torch.optim.Adagrad(parameters, lr=0.02))
        return made[0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", inducing.RollBackWarning)
        train(make, network=failing_once(), num_steps=4)
    counters = {int(state["step"]) for state in made[0].state.values()}
    assert counters == {4}


def failing_once():
    """A network whose third gradient is NaN."""
    torch.manual_seed(0)
    network = inducing.models.mlp(1, 1, [5], inducing_points=X[:6])
    calls = []

    def spoil(gradient):
        calls.append(1)
        return gradient * float("nan") if len(calls) == 3 else gradient

    network.inducing_points.register_hook(spoil)
    return network


def test_the_initial_state_is_given_to_other_processes():
    """As `Division.share` does."""
    states = []
    for value in (1.0, 2.0):
        parameters = [torch.nn.Parameter(torch.full((3,), value))]
        states.append(TrainingState(parameters, 0.1, 5, 1, torch.optim.Adagrad(parameters, lr=0.1)))
    states[1].restore(*states[0].snapshot())
    assert states[1].parameters[0].tolist() == [1.0] * 3
    assert states[1].optimizer.state


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        ("adam", TypeError, "function of the learned parameters"),
        (torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]), TypeError, "function of the learned parameters"),
        (lambda parameters: None, TypeError, "returns a torch.optim.Optimizer"),
        (torch.optim.LBFGS, TypeError, "LBFGS"),
        (lambda parameters: torch.optim.SGD(parameters[1:], lr=0.1), ValueError, "learned parameters that it is given"),
        (lambda parameters: torch.optim.SGD(parameters, lr=0.0), ValueError, "lr > 0"),
    ],
)
def test_what_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        train(make)


def test_settings_that_it_excludes(tmp_path):
    with pytest.raises(inducing.CheckpointError, match="state of Adam only"):
        train(torch.optim.SGD, checkpoint=tmp_path / "run")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="Set lr in the optimizer"):
        train(torch.optim.SGD, learning_rate=0.1)
