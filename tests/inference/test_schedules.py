import pytest

from inducing.inference.schedules import check_schedule, learning_rate_factor, stepwise_warmup


def test_cosine_goes_from_one_to_zero():
    factors = [learning_rate_factor("cosine", progress) for progress in (0.0, 0.5, 1.0)]
    assert factors == pytest.approx([1.0, 0.5, 0.0])


def test_constant_and_functions():
    assert learning_rate_factor("constant", 0.7) == 1.0
    assert learning_rate_factor(lambda progress: 1 - progress, 0.7) == pytest.approx(0.3)


def test_an_unknown_schedule_lists_the_known_ones():
    with pytest.raises(ValueError, match='unknown schedule \'linear\'; known are "constant", "cosine"'):
        check_schedule("linear")


def test_the_warm_up_is_the_papers():
    """0 for the first ten epochs, 0.1 for the next ten, ..., 1 from the hundredth on."""
    assert [stepwise_warmup(epoch, 100) for epoch in (0, 9, 10, 19, 20, 99, 100, 500)] == [
        0,
        0,
        0.1,
        0.1,
        0.2,
        0.9,
        1,
        1,
    ]


def test_no_warm_up():
    assert stepwise_warmup(0, 0) == 1.0
