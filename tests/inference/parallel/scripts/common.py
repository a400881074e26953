"""What the scripts of these ranks share: data, networks, and short ways to fit them."""

import sys
from pathlib import Path

import torch

import inducing

OUT = Path(sys.argv[1])
DOUBLE = {"dtype": torch.float64}
X = torch.linspace(-1, 1, 21, **DOUBLE)[:, None]
Y = X.sin() + 0.1 * torch.cos(40 * X)


def model(seed=0):
    torch.manual_seed(seed)
    return inducing.models.mlp(1, 1, [5], prior="scale", num_inducing=6).double(), inducing.Gaussian().double()


def fit(network, likelihood, data=(X, Y), **kwargs):
    settings = {
        "num_steps": 1,
        "num_samples": 3,
        "early_samples": None,
        "progress": False,
        "learning_rate": 1e-2,
        **kwargs,
    }
    return inducing.fit(network, likelihood, data, **settings)


def learned(network, likelihood):
    return [p for module in (network, likelihood) for p in module.parameters() if p.requires_grad]


def flat(tensors):
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def elastic(network, likelihood, num_steps=40, **kwargs):
    return fit(network, likelihood, num_steps=num_steps, batch_size=8, **kwargs)
