import pytest
import torch

from benchmarks import operations
from benchmarks.workloads import WORKLOADS, self_convolution_gram
from inducing.linalg.convolution.geometry import Geometry
from inducing.linalg.convolution.patches import conv_gram


def test_the_workloads_are_those_that_were_asked_for():
    targets = {name: workload.target for name, workload in WORKLOADS.items()}
    assert targets == {
        "toy": 6,
        "uci-per-output": 5,
        "uci-per-output-full": 9,
        "uci-shared": 5,
        "wide": 40,
        "conv-gram": 3.5,
        "resnet8": 0.2,
        "resnet8-batch": 0.91,
        "dgp-2": 4,
        "dgp-2-shared": 1,
        "dgp-2-shared-float64": 1,
        "dgp-5": 4,
        "dgp-5-shared": 1,
        "dgp-5-shared-float64": 1,
        "dgp-global": 0.8,
        "predict": 5,
        "predict-draw-once": 1,
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of GPyTorch
@pytest.mark.parametrize("name", ["toy", "uci-shared", "dgp-2", "dgp-2-shared", "dgp-2-shared-float64"])
def test_both_sides_take_a_step(name):
    for side in WORKLOADS[name].build():
        side()


def test_the_map_convolved_with_itself_is_the_gram_matrix():
    x = torch.randn(3, 2, 5, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.ones(1, 3, dtype=torch.float64)
    ours = conv_gram(x[None], weights, Geometry((3, 3), (1, 1), (1, 1), "circular"))[0, 0]
    other = self_convolution_gram(x, 3)
    torch.testing.assert_close(ours, other)
    cotangent = torch.randn_like(ours)
    torch.testing.assert_close(*(torch.autograd.grad(side, x, cotangent)[0] for side in (ours, other)))


def test_operations_of_a_regression():
    # n = 4, F = 2, one output, one sample: 3 n F^2 + F^3 + 6 n F + 5 F^2
    assert operations.regression(4, 2, 1, 1, 1, 1) == 48 + 8 + 48 + 20
    # outputs that share a precision share its Gram matrix
    shared, own = (operations.regression(4, 2, 3, 1, groups, 1) for groups in (1, 3))
    assert own - shared == 2 * (48 + 8)
    assert operations.convolution_gram(1, 1, 1, 3) == 2 * 13 + 2 * 25
