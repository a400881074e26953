import sys

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
