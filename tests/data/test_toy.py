import numpy as np

from inducing.data.toy import cubic


def test_the_data_are_the_papers():
    toy = cubic(2000)
    x = (toy.inputs.mean + toy.inputs.std * toy.x).numpy()
    y = (toy.targets.mean + toy.targets.std * toy.y).numpy()
    # x from U([-4, -2] u [2, 4])
    assert np.abs(x).min() > 1.999
    assert np.abs(x).max() < 4.001
    assert abs((np.abs(x).mean() - 3) / (np.sqrt(4 / 12) / np.sqrt(2000))) < 4
    assert abs((np.sign(x).mean()) * np.sqrt(2000)) < 4
    # y = x^3 + N(0, 9)
    residual = y - x**3
    assert abs(residual.mean() / (3 / np.sqrt(2000))) < 4
    assert abs((residual.var() / 9 - 1) / np.sqrt(2 / 2000)) < 4
    np.testing.assert_allclose(toy.noise_variance, 9 / toy.targets.std[0] ** 2)


def test_both_are_normalised():
    toy = cubic()
    assert toy.x.shape == toy.y.shape == (40, 1)
    for values in (toy.x, toy.y):
        assert abs(values.mean()) < 1e-6
        assert abs(values.std(correction=0) - 1) < 1e-5


def test_the_seed_decides():
    assert cubic(seed=1).x.equal(cubic(seed=1).x)
    assert not cubic(seed=1).x.equal(cubic(seed=2).x)
