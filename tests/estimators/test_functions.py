"""Sampled functions of estimators. Oracle: gradients against finite differences, in float64."""

import numpy as np
import pandas as pd
import pytest
import torch

import inducing

RANDOM = np.random.default_rng(0)
X = 10 + 3 * RANDOM.normal(size=(30, 2))
Y = np.column_stack([X[:, 0] ** 2, np.exp(X[:, 1] / 5)])
SMALL = {"max_steps": 5, "random_state": 0}


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (inducing.BNNRegressor([5], **SMALL), Y[:, 0]),
        (inducing.BNNRegressor([5], target_transform="log", **SMALL), Y),
        (inducing.BNNRegressor([5], likelihood="poisson", **SMALL), Y.round()),
        (inducing.DeepGPRegressor(num_inducing=8, **SMALL), Y),
        (inducing.BNNClassifier([5], **SMALL), X[:, 0] > 10),
    ],
)
def test_tensors_have_gradients_and_the_values_of_arrays(estimator, y):
    functions = estimator.fit(X, y).sample_functions(3)
    x = torch.from_numpy(X[:4]).requires_grad_()
    values = functions(x)
    np.testing.assert_allclose(values.detach(), functions(X[:4]), rtol=1e-10)
    assert isinstance(functions(X[:4]), np.ndarray)
    assert torch.autograd.gradcheck(functions, (x,), atol=1e-5, rtol=1e-4)


def test_a_tensor_keeps_its_dtype():
    functions = inducing.BNNRegressor([5], **SMALL).fit(X, Y).sample_functions(3)
    x = torch.from_numpy(X[:4]).float().requires_grad_()
    assert functions(x).dtype == torch.float32
    functions(x).sum().backward()
    assert x.grad.dtype == torch.float32
    np.testing.assert_allclose(functions(x).detach(), functions(X[:4]), rtol=1e-4, atol=1e-3)


def test_an_updated_estimator_has_gradients():
    model = inducing.BNNRegressor([5], likelihood="gaussian", **SMALL).fit(X, Y).update(X[:3] + 1, Y[:3])
    x = torch.from_numpy(X[:2]).requires_grad_()
    assert torch.autograd.gradcheck(model.sample_functions(2), (x,), atol=1e-5, rtol=1e-4)


def test_text_columns_are_encoded_before():
    table = pd.DataFrame({"a": X[:, 0], "colour": ["red", "blue"] * 15})
    model = inducing.BNNRegressor([5], **SMALL).fit(table, Y[:, 0])
    functions = model.sample_functions(3)
    encoded = torch.from_numpy(model.schema_.encode_table(table).to_numpy())
    np.testing.assert_allclose(functions(encoded), functions(table), rtol=1e-10)
    with pytest.raises(ValueError, match=r"X must have shape \(B, 3\), got \(4, 5\)"):
        functions(torch.zeros(4, 5))
    with pytest.raises(TypeError, match=r"X is torch.int64 but the network is torch.float64"):
        functions(torch.zeros(4, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="X contains NaN"):
        functions(torch.full((4, 3), torch.nan))


def test_another_fit_leaves_drawn_functions_as_they_are():
    model = inducing.BNNRegressor([5], **SMALL).fit(X, Y[:, 0])
    functions = model.sample_functions(3)
    before = functions(X)
    model.fit(7 * X, Y[:, 0] - 1e4)
    assert np.array_equal(functions(X), before)


def test_a_number_of_functions_that_is_zero():
    with pytest.raises(ValueError, match="n_samples"):
        inducing.BNNRegressor([5], **SMALL).fit(X, Y[:, 0]).sample_functions(0)
