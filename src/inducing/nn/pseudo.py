"""The parameters of a pseudo-likelihood N(v; ., Lambda^-1), for weights and for the values of Gaussian processes alike.

Every inducing posterior is a prior times such a likelihood. Here is what is learned of it: the pseudo-outputs V, their
precision Lambda, and the inducing inputs where a layer has its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inducing.linalg.pseudo_outputs import PseudoOutputs
from inducing.nn.likelihoods import Gaussian, Likelihood

Noise = TypeVar("Noise", bound=Likelihood)
PrecisionKind = Literal["shared", "per_output", "full", "full_per_output"]

# Adam changes every parameter by about its learning rate, so parameters are stored at a scale of about 1 (the paper's
# appendix "Parameter scaling for ADAM"): log-precisions divided by 3, means of weights times sqrt(fan-in).
LOG_PRECISION_SCALE = 3.0


class PosteriorModule(nn.Module, ABC):
    """A posterior with its parameters.

    ``use_closed_form`` says whether the KL is taken in closed form given the inputs, where that is known, or as one sample
    of log Q - log P. Both have the same mean. ``sample_is_quiet`` says that the gradient of a sample has about the noise
    of that in closed form, and costs less, where all layers of a network are so: what the layers then do not know of each
    other is little.
    """

    use_closed_form: bool = False
    sample_is_quiet: ClassVar[bool] = False


class Regression(PosteriorModule, ABC):
    """A posterior that is a prior times a pseudo-likelihood, at inducing inputs of its own or from below."""

    inducing_inputs: nn.Parameter | None

    @abstractmethod
    def pseudo_data(self) -> PseudoOutputs:
        """V and the root of Lambda."""


class PseudoLikelihood(Regression, ABC):
    """Learned pseudo-outputs and their precision.

    Arguments:
        pseudo_outputs: First values of V.
        inducing_inputs: First values of the layer's own inducing inputs; None if they come from below.
        precision: Which structure Lambda has.
        log_precision: First value of the logarithm of its diagonal.
        closed_form_kl: Whether the KL is taken in closed form.
    """

    precision_lower: nn.Parameter | None

    def __init__(
        self,
        pseudo_outputs: Float[Tensor, "M O *pixels"],
        inducing_inputs: Float[Tensor, "M F"] | None,
        precision: PrecisionKind,
        log_precision: float,
        closed_form_kl: bool,
    ) -> None:
        super().__init__()
        rows, outputs = pseudo_outputs.shape[:2]
        groups = outputs if precision.endswith("per_output") else 1
        self.use_closed_form = closed_form_kl
        self.pseudo_outputs = nn.Parameter(pseudo_outputs)
        self.inducing_inputs = None if inducing_inputs is None else nn.Parameter(inducing_inputs)
        self.scaled_log_precision = nn.Parameter(torch.full((groups, rows), log_precision / LOG_PRECISION_SCALE))
        is_full = precision.startswith("full")
        self.precision_lower = nn.Parameter(torch.zeros(groups, rows, rows)) if is_full else None

    def precision_root(self) -> Float[Tensor, "G M"] | Float[Tensor, "G M M"]:
        """L with Lambda = LL': a diagonal D, or the full D (I + N) with N strictly lower triangular."""
        diagonal = (LOG_PRECISION_SCALE / 2 * self.scaled_log_precision).exp()
        return diagonal if self.precision_lower is None else lower_triangular(diagonal, self.precision_lower)

    def pseudo_data(self) -> PseudoOutputs:
        return PseudoOutputs(self.pseudo_outputs, self.precision_root())


class Optimum(PosteriorModule, Generic[Noise]):
    """The exact posterior of a last layer given those below: it knows the targets, and the likelihood with its noise.

    Arguments:
        targets: Y, a row for each inducing point, which are all rows of the data.
    """

    # the likelihood that it is the optimum for
    noise: ClassVar[type[Likelihood]]
    targets: Tensor
    row_weights: Tensor

    def __init__(self, targets: Float[Tensor, "M O"]) -> None:
        super().__init__()
        self.register_buffer("targets", targets)
        self.register_buffer("row_weights", torch.ones(len(targets)))
        # in a tuple, since it is no part of the network: its parameters belong to whoever owns the likelihood
        self._tied: tuple[Noise, ...] = ()

    def tie(self, likelihood: Noise) -> None:
        """Take the precision from the noise of this likelihood, now and whenever it changes."""
        self._tied = (likelihood,)

    def weigh(self, weights: Float[Tensor, " M"]) -> None:
        """Let each row count as often as its weight says."""
        self.row_weights.copy_(weights)

    @property
    def likelihood(self) -> Noise:
        """The likelihood that it is tied to."""
        if not self._tied:
            raise RuntimeError(
                "the optimal last layer takes its precision from a likelihood; tie them with network.tie(likelihood), "
                "as inducing.ELBO and inducing.fit do"
            )
        return self._tied[0]


class OptimalLikelihood(Optimum[Gaussian], Regression, ABC):
    """The likelihood itself: V = Y, and Lambda = the precision of its noise, times the weight of each row.

    Nothing is learned.
    """

    noise = Gaussian

    def __init__(self, targets: Float[Tensor, "M O"]) -> None:
        super().__init__(targets)
        self.inducing_inputs = None

    def pseudo_data(self) -> PseudoOutputs:
        # one precision for all outputs, or one for each
        root = self.likelihood.noise_variance.rsqrt().reshape(-1, 1) * self.row_weights.sqrt()
        return PseudoOutputs(self.targets, root)


def lower_triangular(diagonal: Float[Tensor, "G M"], lower: Float[Tensor, "G M M"]) -> Float[Tensor, "G M M"]:
    """D (I + N) with N strictly lower triangular: N = 0 is the diagonal matrix, whatever its scale."""
    identity = torch.eye(diagonal.shape[-1], dtype=diagonal.dtype, device=diagonal.device)
    return diagonal[..., None] * (identity + lower.tril(-1))
