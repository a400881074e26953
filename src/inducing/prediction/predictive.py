"""The predictive distribution, a mixture over posterior draws.

p(y | x) = 1/S sum_s p(y | f_s(x)),   V[y] = E_s V[y | f_s] (aleatoric) + V_s E[y | f_s] (epistemic)
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

from inducing.arrays import as_tensor
from inducing.checks import check_dtype, check_inputs, check_whole
from inducing.inference.hmc.sampler import HMCSamples
from inducing.inference.identity import checksums
from inducing.inference.mixtures import Mixture
from inducing.inference.parallel.division import check_parallel, shares
from inducing.inference.parallel.ranks import ALONE, Ranks, join
from inducing.inference.updating import UpdatedNetwork
from inducing.linalg.noise import seeded
from inducing.nn.draw import FunctionSamples
from inducing.nn.likelihoods import Likelihood, integer_quantile
from inducing.nn.network import Network
from inducing.prediction.roots import find_root
from inducing.prediction.running import draw_functions, run_functions


@dataclass(frozen=True, eq=False)
class Predictive:
    """A mixture of S likelihoods, one for each posterior draw.

    All values are on the original scale of the targets: ``location + scale * y``, where y are the targets in training.

    Arguments:
        outputs: Outputs of the S drawn functions.
        likelihood: The distribution of a target given an output. It is a copy that later training does not change.
        location: Mean of the original targets, if the network was trained on standardised targets.
        scale: Standard deviation of the original targets.
        seed: Seed of `samples`.
    """

    outputs: Float[Tensor, "S B *outputs"]
    likelihood: Likelihood
    location: Tensor | float = 0.0
    scale: Tensor | float = 1.0
    seed: int = 0

    def __repr__(self) -> str:
        samples, rows = self.outputs.shape[:2]
        return f"Predictive({rows} rows, {samples} posterior draws, {type(self.likelihood).__name__} likelihood)"

    @property
    def mean(self) -> Float[Tensor, "B *O"]:
        """E[y | x], or the class probabilities."""
        return self.location + self.scale * self.likelihood.mean(self.outputs).mean(0)

    @property
    def function_means(self) -> Float[Tensor, "S B *O"]:
        """E[y | f_s(x)] of each posterior draw f_s, or its class probabilities."""
        return self.location + self.scale * self.likelihood.mean(self.outputs)

    @property
    def aleatoric(self) -> Float[Tensor, "B *O"]:
        """Variance from the noise in the targets, which more data do not reduce."""
        return self.scale**2 * self.likelihood.variance(self.outputs).mean(0)

    @property
    def epistemic(self) -> Float[Tensor, "B *O"]:
        """Variance from uncertainty about the function, which more data reduce."""
        return self.scale**2 * self.likelihood.mean(self.outputs).var(0, correction=0)

    @property
    def variance(self) -> Float[Tensor, "B *O"]:
        """Total variance: aleatoric plus epistemic."""
        return self.aleatoric + self.epistemic

    @property
    def stddev(self) -> Float[Tensor, "B *O"]:
        """Square root of the total variance."""
        return self.variance.sqrt()

    @property
    def samples(self) -> Tensor:
        """One draw of y from each component of the mixture, (S, B, ...). Draws of classes are labels."""
        drawn = self.likelihood.sample(self.outputs, seeded(self.seed, "observation noise"))
        return self.location + self.scale * drawn if drawn.is_floating_point() else drawn

    def log_prob(self, y: Tensor | ArrayLike) -> Float[Tensor, " B"]:
        """Return log p(y | x) of each row: the log-sum-exp over draws, on the original scale of the targets.

        It is a log-density for real targets, and a log-probability for classes and counts. Targets are a tensor with the
        shape of the predictions, or an array. Missing targets (NaN) of a row with several targets are left out.
        """
        y = self.check_targets(y)
        standardised = (y - self.location) / self.scale if y.is_floating_point() else y
        components = self.likelihood.log_prob(self.outputs, standardised)
        mixture = components.logsumexp(0) - math.log(len(components))
        # p(location + scale z) = p(z) / scale, for each output that is not missing
        scale = torch.as_tensor(self.scale, dtype=self.outputs.dtype, device=self.outputs.device)
        if y.is_floating_point() and y.isnan().any():
            return mixture - torch.where(y.isnan(), 0.0, scale.log().expand(y.shape)).flatten(1).sum(1)
        return mixture - scale.log().expand(self._target_shape).sum()

    def quantile(self, q: float | Sequence[float] | Tensor) -> Tensor:
        """Return quantiles of the mixture for each output: (B, ...) for one level, (Q, B, ...) for several.

        A quantile of a mixture is between the smallest and the largest quantile of its components. It is the root of the
        logarithm of the nearer tail, computed in float64, so that extreme quantiles are accurate. For counts and binary
        targets it is the smallest integer k with P(Y <= k) >= q.
        """
        levels = as_tensor(q, dtype=torch.float64)
        if levels.ndim > 1 or levels.numel() == 0 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"q must be one or more numbers between 0 and 1, got {q}")
        found = torch.stack([self._quantile(level) for level in levels.reshape(-1).tolist()])
        found = self.location + self.scale * found.to(self.outputs.dtype)
        return found if levels.ndim else found[0]

    def _quantile(self, level: float) -> Tensor:
        if self.likelihood.support == "integers":
            return integer_quantile(self.likelihood, self.outputs, level)
        outputs = self.outputs.double()
        if type(self.likelihood).icdf is Likelihood.icdf:
            # no formula
            return self.likelihood.quantile_of_draws(outputs, level)
        of_components = self.likelihood.icdf(outputs, level)
        low, high = of_components.amin(0), of_components.amax(0)
        # log P(Y <= y) against log q, or in the upper half log P(Y > y) against log(1 - q)
        upper = level > 0.5
        tail = self.likelihood.log_survival if upper else self.likelihood.log_cdf
        wanted = math.log1p(-level) if upper else math.log(level)
        sign = -1 if upper else 1

        def excess(y: Tensor) -> Tensor:
            return sign * (tail(outputs, y).logsumexp(0) - math.log(len(outputs)) - wanted)

        return find_root(excess, low, high)

    def check_targets(self, y: Tensor | ArrayLike) -> Tensor:
        """Return the targets as a tensor. Raise an error if their shape differs from that of the predictions.

        Targets are not broadcast. Arrays, unlike tensors, may have shape (B,) if there is one target, as in scikit-learn.
        """
        if not isinstance(y, Tensor):
            y = as_tensor(y)
            y = y[:, None] if y.ndim == 1 and self._target_shape == (1,) else y
        y = self.likelihood.check_targets(y, tuple(self.outputs.shape[2:]))
        check_dtype("y", y, self.outputs.dtype)
        if len(y) != self.outputs.shape[1]:
            raise ValueError(f"y must have {self.outputs.shape[1]} rows, one for each prediction, got {len(y)}")
        return y

    def take_draws(self, chosen: Int[Tensor, " T"]) -> Predictive:
        """Return the prediction by some of the draws, given their positions."""
        return replace(self, outputs=self.outputs[chosen], likelihood=self.likelihood.for_draws(chosen))

    def unstandardise(self, location: ArrayLike, scale: ArrayLike) -> Predictive:
        """Return the prediction on the original scale of the targets, y = location + scale * y_standardised.

        Both are numbers, or arrays or tensors with one number for each output.
        """
        if self.likelihood.support != "real":
            raise TypeError(
                f"targets of a {type(self.likelihood).__name__} likelihood cannot be rescaled. Do not standardise them"
            )
        mean, std = (as_tensor(v, dtype=self.outputs.dtype, device=self.outputs.device) for v in (location, scale))
        targets = self._target_shape
        if not (mean.shape in ((), (1,), targets) and std.shape in ((), (1,), targets) and (std > 0).all()):
            raise ValueError(f"location and scale must be numbers or have shape {targets}, and scale must be positive")
        return replace(self, location=mean + std * self.location, scale=std * self.scale)

    @property
    def _target_shape(self) -> tuple[int, ...]:
        """Shape of one row of predictions. It differs from that of the outputs if some outputs are not means."""
        return tuple(self.likelihood.mean(self.outputs).shape[2:])


def predict(
    network: Network | UpdatedNetwork | Mixture | HMCSamples,
    likelihood: Likelihood,
    x: Float[Tensor, "B *in"],
    num_samples: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    parallel: Literal["samples", "rows"] | None = None,
) -> Predictive:
    """Predict the targets of new inputs.

    The same seed draws the same functions for every batch size.

    Arguments:
        network: A fitted network, the result of `inducing.update`, a `Mixture`, or the draws of `inducing.hmc`.
        likelihood: The likelihood of the network.
        x: New inputs.
        num_samples: Number of posterior draws in the mixture. Default: 100. All draws of `inducing.hmc` are used.
        batch_size: Maximum number of rows that a thread runs at a time. Default: chosen by the size of
            the functions; all rows on devices other than the CPU.
        seed: Seed of the draws.
        parallel: How the processes started by `torchrun` divide the work. "samples": each process has its own draws.
            "rows": each process has a part of the inputs, and the result is that of one process. All processes must make
            this call with the same arguments, and all return the whole prediction. Default: this process works alone.

    Example:
        >>> import inducing, torch
        >>> network = inducing.models.mlp(3, 1, num_inducing=10)
        >>> likelihood, x = inducing.Gaussian(), torch.randn(5, 3)
        >>> predictive = inducing.predict(network, likelihood, x, num_samples=20)
        >>> predictive.mean.shape, predictive.quantile([0.05, 0.95]).shape
        (torch.Size([5, 1]), torch.Size([2, 5, 1]))
    """
    _check_order(network, likelihood)
    if batch_size is not None:
        batch_size = check_whole("batch_size", batch_size)
    check_parallel(parallel, ("samples", "rows"))
    ranks = ALONE if parallel is None else join()
    if isinstance(network, HMCSamples):
        functions = _draws_of_hmc(network, x, num_samples, parallel)
    else:
        num_samples = 100 if num_samples is None else check_whole("num_samples", num_samples)
        own_ranks = ranks if parallel == "samples" else ALONE
        functions = _draw(network, likelihood, x, num_samples, seed, own_ranks)
    if ranks.size > 1:
        models = [likelihood, network] if isinstance(network, Network | Mixture) else [likelihood]
        arguments = {
            "x": checksums([x]),
            "parameters": [checksums(model.state_dict().values()) for model in models],
            "num_samples": num_samples,
            "seed": int(seed),
            "parallel": parallel,
        }
        ranks.agree(arguments, "predict divides them itself")
    # with fewer rows than processes, each runs all of them
    if parallel == "rows" and len(x) >= ranks.size:
        counts = shares(len(x), ranks.size)
        outputs = ranks.concatenate(run_functions(functions, x.split(counts)[ranks.rank], batch_size), 1, counts)
    else:
        outputs = run_functions(functions, x, batch_size)
    if parallel == "samples":
        assert num_samples is not None
        outputs = ranks.concatenate(outputs, 0, shares(num_samples, ranks.size))
    return Predictive(outputs, copy.deepcopy(likelihood).requires_grad_(False), seed=seed)


def _check_order(network: object, likelihood: object) -> None:
    if not (
        isinstance(network, Network | UpdatedNetwork | Mixture | HMCSamples) and isinstance(likelihood, Likelihood)
    ):
        found = f"{type(network).__name__}, {type(likelihood).__name__}"
        raise TypeError(f"the order is predict(network, likelihood, x), got predict({found}, ...)")


def _draws_of_hmc(samples: HMCSamples, x: Tensor, num_samples: int | None, parallel: str | None) -> FunctionSamples:
    """Return all draws of `hmc`."""
    if num_samples is not None:
        raise ValueError(
            "num_samples cannot be given for the draws of hmc, since all are used. Leave it out, or keep fewer draws with "
            "hmc(..., thin=10)"
        )
    if parallel == "samples":
        raise ValueError('the draws of hmc cannot be divided over processes. Divide the inputs with parallel="rows"')
    check_inputs(x, samples.functions.input_shape, samples.functions.dtype)
    return samples.functions


def _draw(
    network: Network | UpdatedNetwork | Mixture,
    likelihood: Likelihood,
    x: Tensor,
    num_samples: int,
    seed: int,
    ranks: Ranks,
) -> FunctionSamples:
    """Return this rank's draws from a network."""
    check_inputs(x, network.input_shape, network.dtype)
    if num_samples < ranks.size:
        raise ValueError(
            f"{num_samples} draws cannot be divided over {ranks.size} processes. Raise num_samples, or divide the inputs "
            'with parallel="rows"'
        )
    count = shares(num_samples, ranks.size)[ranks.rank]
    own_seed = seed if ranks.first else seeded(seed, f"functions on rank {ranks.rank}").initial_seed()
    if isinstance(network, Mixture):
        first = sum(shares(num_samples, ranks.size)[: ranks.rank])
        return draw_functions(network, likelihood, count, own_seed, first=first, total=num_samples)
    return draw_functions(network, likelihood, count, own_seed)
