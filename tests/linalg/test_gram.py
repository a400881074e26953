import torch

from inducing.linalg.gram import weighted_grams


def make(samples=2, rows=5, features=3, groups=4):
    inputs = torch.randn(samples, rows, features, dtype=torch.float64, requires_grad=True)
    return inputs, torch.rand(groups, rows, dtype=torch.float64, requires_grad=True)


def test_each_is_the_plain_product():
    inputs, weights = make()
    expected = torch.einsum("sni,gn,snj->sgij", inputs, weights, inputs)
    torch.testing.assert_close(weighted_grams(inputs, weights), expected)


def test_gradients():
    assert torch.autograd.gradcheck(weighted_grams, make())
    assert torch.autograd.gradcheck(weighted_grams, make(samples=1, rows=1, features=1, groups=1))


def test_chunks_of_rows_change_nothing(monkeypatch):
    inputs, weights = make()
    whole = weighted_grams(inputs, weights)
    monkeypatch.setattr("inducing.linalg.gram.ROWS", 2)
    torch.testing.assert_close(weighted_grams(inputs, weights), whole)
    assert torch.autograd.gradcheck(weighted_grams, (inputs, weights))


def test_gradients_are_those_of_the_plain_product():
    inputs, weights = make()
    cotangent = torch.randn(2, 4, 3, 3, dtype=torch.float64)
    ours = torch.autograd.grad(weighted_grams(inputs, weights), (inputs, weights), cotangent)
    plain = torch.einsum("sni,gn,snj->sgij", inputs, weights, inputs)
    torch.testing.assert_close(ours, torch.autograd.grad(plain, (inputs, weights), cotangent))
