import pytest
import torch

from inducing.inference.history import History, Record


def record(step, elbo):
    return Record(step, elbo, elbo + 3.5, (1.0, 2.0), (0.0, 0.5), 1.0, 0.01, 3.0, 0.0, elbo, 0.2)


def history(values):
    return History([record(step, value) for step, value in enumerate(values, 1)])


def test_round_trip_through_a_tensor_is_exact():
    original = history([0.1 + 0.2, 1 / 3, -1e300])
    assert History.from_tensor(original.to_tensor()) == original
    assert History.from_tensor(History().to_tensor()) == History()


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


def test_a_table_of_another_version_is_refused():
    with pytest.raises(ValueError, match=r"no history has the shape \(3, 12\)"):
        History.from_tensor(torch.zeros(3, 12))
