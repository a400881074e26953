"""The arguments that a network passes to its layers when it builds them and when it draws them."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Generator, Tensor, nn

from inducing.nn.likelihoods import Likelihood

Shape = tuple[int, ...]


@dataclass(frozen=True)
class BuildContext:
    """Information about one position of a network, for creating the parameters of the layer there.

    Arguments:
        input_shape: Shape of one input row of the next layer.
        num_inducing: Number M of global inducing points, or None if the network has none.
        targets: Initial pseudo-outputs of the last layer, if the user passed any.
        last_bayesian_layer: The last Bayesian layer of the network.
        inducing_used_above_last: Whether a part above that layer, such as `InducingNorm`, uses the inducing points.
        example_rows: The inducing points at this position if each layer below equals its mean function. None if that is
            unknown, e.g. above layers of weights.
        generator: Source of initial values. Default: torch's global generator.
    """

    input_shape: Shape
    num_inducing: int | None = None
    targets: Float[Tensor, "M O"] | None = None
    last_bayesian_layer: nn.Module | None = None
    inducing_used_above_last: bool = False
    example_rows: Float[Tensor, "M *in"] | None = None
    generator: Generator | None = None


@dataclass(frozen=True)
class DrawContext:
    """Settings of a draw, the same for all layers of a network.

    Arguments:
        num_samples: Number S of functions.
        generator: Source of the noise. Default: torch's global generator.
        consistent: Whether functions must return the same outputs at each call. Marginal draws do not.
        closed_form_kl: Whether the KLs of layers are computed in closed form given their inputs, where a formula exists,
            instead of as a sample of log Q - log P. If False, each posterior uses its own setting.
        sampled_kls_suffice: Whether all posteriors of the network have sampled KLs with gradients of low variance. Their
            regressions then sample the KL even if `closed_form_kl` is set, since this costs less.
        likelihood: The likelihood whose noise an `OptimalInducing` posterior uses.
        joint: Whether functions must be drawn jointly at all rows of a call. Marginal draws are not.
        given_prior: Whether closed-form KLs of weights are given the sampled variables of their priors, such as a scale,
            instead of expectations over them.
    """

    num_samples: int
    generator: Generator | None = None
    consistent: bool = False
    closed_form_kl: bool = False
    sampled_kls_suffice: bool = False
    likelihood: Likelihood | None = None
    joint: bool = False
    given_prior: bool = False

    @property
    def closed_form_regressions(self) -> bool:
        """Whether the KLs of regressions are computed in closed form."""
        return self.closed_form_kl and not self.sampled_kls_suffice
