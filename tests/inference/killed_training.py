"""A training run with checkpoints, for processes that are killed."""

import torch

import inducing


def train(folder, num_steps):
    """Train a small network, and write its parameters and history beside the folder of its checkpoints."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 64)[:, None]
    network, likelihood = inducing.models.mlp(1, 1, [8], prior="scale", num_inducing=10), inducing.Gaussian()
    history = inducing.fit(
        network,
        likelihood,
        (x, x.sin()),
        num_steps=num_steps,
        batch_size=10,
        checkpoint=folder,
        checkpoint_seconds=0.02,
        progress=False,
        callbacks=[inducing.JSONLog(f"{folder}.jsonl")],
    )
    torch.save(([p.detach() for p in network.parameters()], [r[:-1] for r in history.records]), f"{folder}.pt")
