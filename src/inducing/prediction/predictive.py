"""The predictive distribution: a mixture over posterior draws.

p(y | x) = 1/S sum_s p(y | f_s(x)),   V[y] = E_s V[y | f_s] (aleatoric) + V_s E[y | f_s] (epistemic)
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from inducing.arrays import as_tensor
from inducing.checks import check_dtype, check_inputs, check_whole
from inducing.inference.checkpoint import checksums
from inducing.inference.distributed import ALONE, join
from inducing.inference.division import check_parallel, shares
from inducing.inference.hmc import HMCSamples
from inducing.linalg.noise import seeded
from inducing.nn.draw import FunctionSamples
from inducing.nn.likelihoods import Likelihood, integer_quantile
from inducing.nn.network import Network
from inducing.prediction.roots import find_root
from inducing.threads import Work, threads_for, threads_of_user, using_threads


@dataclass(frozen=True, eq=False)
class Predictive:
    """A mixture of S likelihoods, one for each posterior draw.

    All figures are on the scale of the targets: ``location + scale * y`` for targets y that the network saw.

    Arguments:
        outputs: Outputs of the S drawn functions.
        likelihood: The distribution of a target given an output; a copy that later training does not change.
        location: Mean of the original targets, where the network saw standardised ones.
        scale: Their standard deviation.
        seed: Seed of `samples`.
    """

    outputs: Float[Tensor, "S B *outputs"]
    likelihood: Likelihood
    location: Tensor | float = 0.0
    scale: Tensor | float = 1.0
    seed: int = 0

    @property
    def mean(self) -> Float[Tensor, "B *O"]:
        """E[y | x]; for classes, their probabilities."""
        return self.location + self.scale * self.likelihood.mean(self.outputs).mean(0)

    @property
    def aleatoric(self) -> Float[Tensor, "B *O"]:
        """Variance from the noise in the targets: it stays however many data there are."""
        return self.scale**2 * self.likelihood.variance(self.outputs).mean(0)

    @property
    def epistemic(self) -> Float[Tensor, "B *O"]:
        """Variance from not knowing the function: it goes with more data."""
        return self.scale**2 * self.likelihood.mean(self.outputs).var(0, correction=0)

    @property
    def variance(self) -> Float[Tensor, "B *O"]:
        """The total variance, aleatoric plus epistemic."""
        return self.aleatoric + self.epistemic

    @property
    def stddev(self) -> Float[Tensor, "B *O"]:
        """The square root of the total variance."""
        return self.variance.sqrt()

    @property
    def samples(self) -> Tensor:
        """One draw of y from each component of the mixture, (S, B, ...); class labels for classes."""
        drawn = self.likelihood.sample(self.outputs, seeded(self.seed, "observation noise"))
        return self.location + self.scale * drawn if drawn.is_floating_point() else drawn

    def log_prob(self, y: Tensor | ArrayLike) -> Float[Tensor, " B"]:
        """log p(y | x) of each row: the log-sum-exp over draws, as a density on the original scale of the targets.

        Targets are a tensor shaped as the predictions are, or an array. For classes and counts it is the logarithm of a
        probability.
        """
        y = self.check_targets(y)
        standardised = (y - self.location) / self.scale if y.is_floating_point() else y
        components = self.likelihood.log_prob(self.outputs, standardised)
        mixture = components.logsumexp(0) - math.log(len(components))
        # p(location + scale z) = p(z) / scale, for each output
        scale = torch.as_tensor(self.scale, dtype=self.outputs.dtype, device=self.outputs.device)
        return mixture - scale.log().expand(self._target_shape).sum()

    def quantile(self, q: float | Sequence[float] | Tensor) -> Tensor:
        """Quantiles of the mixture for each output: (B, ...) for a number, (Q, B, ...) for several.

        A quantile of a mixture lies between the smallest and the largest of its components' quantiles. A search on the
        logarithm of the nearer tail finds it, in float64, so that far tails keep their digits. For counts, and for 0 and 1,
        it is the smallest integer k with P(Y <= k) >= q.
        """
        levels = as_tensor(q, dtype=torch.float64)
        if levels.ndim > 1 or levels.numel() == 0 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"quantiles are one or more numbers between 0 and 1, got {q}")
        found = torch.stack([self._quantile(level) for level in levels.reshape(-1).tolist()])
        found = self.location + self.scale * found.to(self.outputs.dtype)
        return found if levels.ndim else found[0]

    def _quantile(self, level: float) -> Tensor:
        if self.likelihood.support == "integers":
            return integer_quantile(self.likelihood, self.outputs, level)
        outputs = self.outputs.double()
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
        """Refuse targets that do not fit the predictions, also those that would only broadcast.

        Arrays, unlike tensors, may have one number for each row where there is one target, as those of scikit-learn have.
        """
        if not isinstance(y, Tensor):
            y = as_tensor(y)
            y = y[:, None] if y.ndim == 1 and self._target_shape == (1,) else y
        y = self.likelihood.check_targets(y, tuple(self.outputs.shape[2:]))
        check_dtype("y", y, self.outputs.dtype)
        if len(y) != self.outputs.shape[1]:
            raise ValueError(f"y must have {self.outputs.shape[1]} rows, one for each prediction, got {len(y)}")
        return y

    def unstandardise(self, location: ArrayLike, scale: ArrayLike) -> Predictive:
        """Return the same prediction on the original scale of the targets, y = location + scale * y_standardised.

        Both are numbers, or arrays or tensors with one number for each output.
        """
        if self.likelihood.support != "real":
            raise TypeError(f"targets of a {type(self.likelihood).__name__} likelihood have no other scale")
        mean, std = (as_tensor(v, dtype=self.outputs.dtype, device=self.outputs.device) for v in (location, scale))
        targets = self._target_shape
        if not (mean.shape in ((), (1,), targets) and std.shape in ((), (1,), targets) and (std > 0).all()):
            raise ValueError(f"location and scale must be numbers, or {targets} of them, and scale positive")
        return replace(self, location=mean + std * self.location, scale=std * self.scale)

    @property
    def _target_shape(self) -> tuple[int, ...]:
        """Shape of one row of predictions; that of the outputs, unless some of them say something else than the mean."""
        return tuple(self.likelihood.mean(self.outputs).shape[2:])


def predict(
    network: Network | HMCSamples,
    likelihood: Likelihood,
    x: Float[Tensor, "B *in"],
    num_samples: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    parallel: Literal["samples", "rows"] | None = None,
) -> Predictive:
    """Predict the targets of new inputs.

    The same seed draws the same functions, so predictions do not depend on how the rows are batched.

    Arguments:
        network: A fitted network, or the draws of `inducing.hmc`.
        likelihood: Its likelihood.
        x: New inputs.
        num_samples: Number of posterior draws in the mixture; 100 is the default. Those of `inducing.hmc` are all used.
        batch_size: Rows to run at a time; the default is all.
        seed: Seed of the draws.
        parallel: What the processes that `torchrun` started divide: "samples", the draws, each with a stream of its own;
            "rows", the inputs, which gives the prediction of one process. All of them must call it, with the same
            arguments, and all have the whole prediction in the end. None: each that calls it works by itself.

    Example:
        >>> import inducing, torch
        >>> network = inducing.models.mlp(3, 1, num_inducing=10)
        >>> predictive = inducing.predict(network, inducing.Gaussian(), torch.randn(5, 3), num_samples=20)
        >>> predictive.mean.shape, predictive.quantile([0.05, 0.95]).shape
        (torch.Size([5, 1]), torch.Size([2, 5, 1]))
    """
    if batch_size is not None:
        batch_size = check_whole("batch_size", batch_size)
    check_parallel(parallel, ("samples", "rows"))
    ranks = ALONE if parallel is None else join()
    parts, stream = [1], seed
    if isinstance(network, HMCSamples):
        if num_samples is not None:
            raise ValueError(
                "num_samples draws functions from a network; those of hmc are drawn already, and all are used. Leave it "
                "out, or keep fewer draws with hmc(..., thin=10)"
            )
        if parallel == "samples":
            raise ValueError('draws of hmc are drawn already; divide the inputs over processes, parallel="rows"')
        functions = network.functions
        x = check_inputs(x, functions.input_shape, functions.dtype)
        threads = _choose_threads(lambda *_: functions, x, 1, batch_size)
    else:
        x = check_inputs(x, network.input_shape, network.dtype)
        network.tie(likelihood)
        num_samples = 100 if num_samples is None else check_whole("num_samples", num_samples)
        if parallel == "samples":
            if num_samples < ranks.size:
                raise ValueError(
                    f"{num_samples} draws cannot be divided over {ranks.size} processes; raise num_samples, or divide the "
                    'inputs, parallel="rows"'
                )
            parts = shares(num_samples, ranks.size)
            num_samples = parts[ranks.rank]
            if not ranks.first:
                stream = seeded(seed, f"functions on rank {ranks.rank}").initial_seed()
        threads = _choose_threads(network.sample_functions, x, num_samples, batch_size)
        with using_threads(threads):
            functions = network.sample_functions(num_samples, stream)
    if ranks.size > 1:
        models = [likelihood, network] if isinstance(network, Network) else [likelihood]
        learned = [checksums(model.parameters()) for model in models]
        same = {
            "x": checksums([x]),
            "parameters": learned,
            "num_samples": int(sum(parts)),
            "seed": int(seed),
            "parallel": parallel,
        }
        ranks.agree(same, "predict divides them itself")
    if parallel == "rows":
        # with fewer rows than processes, all of them do all
        ranks = ranks if len(x) >= ranks.size else ALONE
        parts = shares(len(x), ranks.size)
        x = x.split(parts)[ranks.rank]
    device = functions.device
    with torch.no_grad(), using_threads(threads):
        outputs = torch.cat([functions(rows.to(device)) for rows in x.split(batch_size or max(len(x), 1))], 1)
    outputs = ranks.concatenate(outputs, 1 if parallel == "rows" else 0, parts)
    frozen = copy.deepcopy(likelihood).requires_grad_(False)
    return Predictive(outputs, frozen, seed=seed)


def _choose_threads(
    sample: Callable[[int, int], FunctionSamples], x: Tensor, num_samples: int, batch_size: int | None
) -> int:
    """The number of threads for the draws and a batch, by the work of one draw and one row."""
    of_user = threads_of_user()
    if of_user is not None:
        return of_user
    with using_threads(1), torch.no_grad(), warnings.catch_warnings():
        # what there is to warn of is said by the draws themselves
        warnings.simplefilter("ignore")
        with Work() as drawing:
            functions = sample(1, 0)
        with Work() as running:
            functions(x[:1].to(functions.device))
    rows = min(batch_size or len(x), len(x))
    return threads_for(num_samples * (drawing.operations + rows * running.operations))
