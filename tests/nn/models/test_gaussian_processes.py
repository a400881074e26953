import pytest

import inducing


def test_each_layer_may_have_its_own_kernel():
    small = inducing.kernels.SquaredExponential(variance=0.1)
    network = inducing.models.deep_gp(2, 1, 2, kernel=[small, "matern32"], num_inducing=5)
    assert [layer.kernel_spec for layer in network.layers] == [small, inducing.kernels.Matern32()]
    with pytest.raises(ValueError, match="1 kernels for 2 layers"):
        inducing.models.deep_gp(2, 1, 2, kernel=[small], num_inducing=5)
    with pytest.raises(ValueError, match="pass an instance"):
        inducing.models.deep_gp(2, 1, 2, kernel=inducing.kernels.SquaredExponential, num_inducing=5)
