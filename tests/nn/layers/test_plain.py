import pytest
import torch
from torch import nn

import inducing
from inducing.nn.layers.plain import Folded, check_plain


class Centre(nn.Module):
    """Subtracts the mean of the batch: deterministic and without parameters, but it mixes rows."""

    def forward(self, x):
        return x - x.mean(0)


class EvalDropout(nn.Module):
    """Noise that only training mode shows."""

    def forward(self, x):
        return nn.functional.dropout(x, training=self.training)


class AddNoise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


@pytest.mark.parametrize(
    ("module", "shape", "expected"),
    [
        (nn.ReLU(), (4,), (4,)),
        (nn.Tanh(), (4,), (4,)),
        (nn.Identity(), (4,), (4,)),
        (nn.Flatten(), (2, 3, 3), (18,)),
        (nn.MaxPool2d(2), (3, 8, 8), (3, 4, 4)),
        (nn.AdaptiveAvgPool2d(1), (3, 8, 8), (3, 1, 1)),
        (nn.Sequential(nn.ReLU(), nn.Flatten()), (2, 2), (4,)),
        (nn.Softmax(-1), (4,), (4,)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_modules_are_welcome(module, shape, expected):
    before = torch.get_rng_state()
    assert check_plain(module, "layers.1", shape) == expected
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Dropout(0.5), "adds noise"),
        (nn.Sequential(nn.ReLU(), nn.Dropout(0.5)), "adds noise"),
        (nn.BatchNorm1d(4), "mixes the rows of a batch.*InducingNorm"),
        (nn.BatchNorm1d(4, affine=False, track_running_stats=False), "mixes the rows"),
        (nn.Linear(4, 4), r"has parameters \(weight, bias\).*without a prior.*inducing\.Linear"),
        (nn.PReLU(), r"has parameters \(weight\)"),
        (nn.LayerNorm(4), "has parameters"),
        (Centre(), "mixes the rows of a batch"),
        (nn.Softmax(0), "mixes the rows of a batch"),
        (AddNoise(), "not deterministic"),
        (EvalDropout().eval(), "not deterministic"),
        (nn.RReLU().eval(), "not deterministic"),
        (nn.ReLU(inplace=True), "works in place.*Use inplace=False"),
        (nn.RReLU(), "not deterministic"),
        (nn.MaxPool2d(2), "does not run on a batch"),
        (nn.Flatten(0), "must turn a batch of B rows"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_others_are_refused_with_the_reason(module, message):
    with pytest.raises(ValueError, match=rf"layers\.1 (?s:.*){message}"):
        inducing.Network([inducing.Linear(3, 4, posterior="factorised"), module], input_shape=3)


def test_samples_are_folded_into_the_batch():
    x = torch.randn(2, 3, 1, 4, 4)
    folded = Folded(nn.MaxPool2d(2))(x)
    torch.testing.assert_close(folded, torch.stack([nn.functional.max_pool2d(sample, 2) for sample in x]))
