"""A small Bayesian neural network sampled by an independent sampler: Pyro's NUTS, on a potential of its own."""

import pyro
import torch
from pyro.infer import MCMC, NUTS


def outputs(x, y, new, hidden, noise_variance, num_warmup, num_samples, seed):
    """Draws of f(new), (num_samples, B), for a network 1 - hidden - 1 of tanh with w ~ N(0, 1/fan_in)."""

    def function(inputs, first, last):
        ones = torch.ones(len(inputs), 1, dtype=inputs.dtype)
        return torch.cat([torch.tanh(torch.cat([inputs, ones], 1) @ first), ones], 1) @ last

    def potential(weights):
        first, last = weights["first"], weights["last"]
        residual = y - function(x, first, last)
        prior = len(first) * first.square().sum() + len(last) * last.square().sum()
        return (prior + residual.square().sum() / noise_variance) / 2

    with torch.random.fork_rng(devices=[]):
        pyro.set_rng_seed(seed)
        start = {
            "first": torch.randn(2, hidden, dtype=x.dtype) / 2**0.5,
            "last": torch.randn(hidden + 1, 1, dtype=x.dtype) / (hidden + 1) ** 0.5,
        }
        mcmc = MCMC(
            NUTS(potential_fn=potential, max_tree_depth=5), num_samples, num_warmup, initial_params=start,
            disable_progbar=True,
        )  # fmt: skip
        mcmc.run()
        draws = mcmc.get_samples()
    return torch.stack([function(new, *pair)[:, 0] for pair in zip(draws["first"], draws["last"], strict=True)])
