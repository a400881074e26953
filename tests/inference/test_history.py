import pytest
import torch

from inducing.inference.history import History, Record


def record(step, elbo):
    return Record(step, elbo, elbo + 3.5, (1.0, 2.0), (0.0, 0.5), 1.0, 0.01, 3.0, 0.0, elbo, 0.2)


def history(values):
    return History([record(step, value) for step, value in enumerate(values, 1)])


def test_round_trip_through_a_tensor_is_exact():
    original = history([0.1 + 0.2, 1 / 3, -1e300])
    assert History.from_tensor(original.to_tensor(), 2) == original
    assert History.from_tensor(History().to_tensor(), 2) == History()


def test_a_plateau_is_no_rise_beyond_the_noise():
    noise = torch.randn(100, generator=torch.Generator().manual_seed(0)).tolist()
    rising = [0.2 * step + value for step, value in enumerate(noise)]
    assert history(noise).has_plateaued(50)
    assert not history(rising).has_plateaued(50)
    assert not history(noise[:99]).has_plateaued(50), "it is asked once in 50 steps"
    assert not history(noise[:50]).has_plateaued(50), "two windows are needed"


def test_a_tempered_run_rests_when_its_objective_does():
    """The KL grows as fast as the log-likelihood: the ELBO stands still, the objective with a tenth of the KL rises."""
    steps = [Record(s, 0.0, 0.1 * s, (0.1 * s,), (0.0,), 0.1, 0.01, 3.0, 0.0, 0.09 * s, 0.2) for s in range(1, 101)]
    assert not History(steps).has_plateaued(50)
    assert History([step._replace(objective=step.elbo) for step in steps]).has_plateaued(50)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (torch.zeros(3, 12).double(), r"\(3, 12\), but 2 layers need torch.float64 \(steps, 13\)"),
        (torch.zeros(3, 11).double(), "2 layers"),
        (torch.zeros(3, 13), "float32"),
        (torch.zeros(13).double(), "2 layers"),
        (torch.full((1, 13), torch.nan).double(), "NaN"),
        (torch.zeros(2, 13).double(), "steps 1 to 2"),
    ],
)
def test_a_table_that_is_not_the_history_of_this_network_is_refused(table, message):
    with pytest.raises(ValueError, match=message):
        History.from_tensor(table, 2)
