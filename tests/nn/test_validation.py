import sys

import pytest

import inducing
from inducing.nn.layers import Parts
from inducing.nn.validation import check_resampling


def calls(num_layers):
    """Number of function calls that the check of a network takes."""
    layers = Parts([inducing.Linear(1, 1) for _ in range(num_layers)])
    events = []
    sys.setprofile(lambda frame, event, argument: events.append(event))
    try:
        check_resampling(layers)
    finally:
        sys.setprofile(None)
    return len(events)


def test_the_order_of_layers_is_checked_in_linear_time():
    assert calls(80) < 5 * calls(20)


def test_branches_of_a_residual_block_are_beside_each_other():
    local = inducing.Factorised(local_reparameterisation=True)
    body, shortcut = inducing.Linear(2, 2, posterior=local), inducing.Linear(2, 2, posterior="global")
    inducing.Network([inducing.Residual(body, shortcut=shortcut)], num_inducing=3, input_shape=2)
    block = inducing.Residual(inducing.Linear(2, 2, posterior=local))
    with pytest.raises(ValueError, match=r"local reparameterisation.*layers\.1"):
        inducing.Network([block, inducing.Linear(2, 1)], num_inducing=3, input_shape=2)
