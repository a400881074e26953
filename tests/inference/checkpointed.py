"""A small run with checkpoints, and what its tests compare."""

import torch

import inducing

X = torch.linspace(-1, 1, 20)[:, None]
Y = X.sin()


def fit(folder, *, steps=12, seed=0, data=(X, Y), **kwargs):
    torch.manual_seed(0)
    net, likelihood = inducing.models.mlp(1, 1, [5], prior="scale", num_inducing=6), inducing.Gaussian()
    arguments = {"num_steps": steps, "batch_size": 8, "checkpoint": folder, "checkpoint_seconds": 0.0, **kwargs}
    history = inducing.fit(net, likelihood, data, seed=seed, **{"progress": False, **arguments})
    return net, history


def numbers(history):
    """All of a history but the time."""
    return [record[:-1] for record in history.records]


def same(first, second):
    return all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))


class Stop(Exception):
    pass


def stop_at(step):
    def callback(record):
        if record.step == step:
            raise Stop

    return callback
