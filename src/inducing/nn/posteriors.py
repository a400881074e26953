"""Approximate posteriors, as a user specifies them: immutable values without tensors.

A layer builds its parameters from them. Those over weights live in `inducing.nn.weights`, those over the values of a
Gaussian process in `inducing.nn.values`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.geometry import Geometry
from inducing.linalg.noise import initial_normal
from inducing.nn.heteroscedastic import HeteroscedasticWeights
from inducing.nn.likelihoods import FIRST_VARIANCE
from inducing.nn.pseudo import PrecisionKind
from inducing.nn.sites import Site, ValueSite
from inducing.nn.specification import KLKind, lookup
from inducing.nn.values import (
    CoupledValues,
    InducingValues,
    OptimalValues,
    PriorValues,
    RegressedValues,
    WhitenedValues,
)
from inducing.nn.weights import (
    ConvolvedWeights,
    FactorisedWeights,
    InducingWeights,
    OptimalWeights,
    PriorWeights,
    Weights,
)


@dataclass(frozen=True)
class Posterior(ABC):
    """A specification of a posterior: without tensors, immutable, shared between layers as one likes."""

    needs_inducing: ClassVar[bool] = False

    @abstractmethod
    def build(self, site: Site) -> Weights:
        """Make the parameters for the weights of a layer."""

    @abstractmethod
    def build_values(self, site: ValueSite) -> InducingValues:
        """Make the parameters for the values of a Gaussian process."""

    def build_convolution(self, site: Site, geometry: Geometry, size: tuple[int, int], bias: bool) -> Weights:
        """Make the parameters for the weights of a convolution; the same as those of any layer, unless it uses the maps."""
        return self.build(site)


@dataclass(frozen=True)
class Factorised(Posterior):
    """Independent normals for all weights. Means start as draws from NealPrior.

    Arguments:
        local_reparameterisation: Sample the outputs for each row instead of the weights (Kingma et al., 2015).
            Gradients are less noisy, but the rows no longer share a function, so a layer with inducing points cannot
            follow.
        initial_variance: Variances start at this divided by sqrt(fan-in).
        kl: "closed_form", or one "sample" of log Q - log P.
    """

    local_reparameterisation: bool = False
    initial_variance: float = 1e-3
    kl: KLKind = "closed_form"

    def __post_init__(self) -> None:
        _check_choice("kl", self.kl, KLKind)
        if not self.initial_variance > 0:
            raise ValueError(f"initial_variance must be positive, got {self.initial_variance}")
        if self.local_reparameterisation and self.kl == "sample":
            raise ValueError('local reparameterisation samples no weights, so it needs kl="closed_form"')

    def build(self, site: Site) -> FactorisedWeights:
        variance = self.initial_variance / math.sqrt(site.fan_in)
        scaled_mean = initial_normal(site.fan_in, site.out_features, generator=site.generator)
        return FactorisedWeights(scaled_mean, variance, self.kl == "closed_form")

    def build_values(self, site: ValueSite) -> InducingValues:
        raise ValueError(
            "a Factorised posterior is over weights, and a Gaussian process has none; "
            'use "global", "local", "dsvi", "coupled" or "prior"'
        )


@dataclass(frozen=True)
class LocalInducing(Posterior):
    """The regression on inducing inputs that each layer learns for itself: no correlation between layers.

    Arguments:
        num_inducing: Rows of this layer's own inducing inputs; the default is the fan-in.
        precision: Pseudo-output precisions "shared" by all outputs, "per_output", "full" (M x M), "full_per_output". None
            stands for "shared" in layers of weights and "full_per_output" in those of Gaussian processes.
        log_precision: First value; None stands for the paper's, 0 in the last layer and -4 elsewhere (in Gaussian process
            layers 0 everywhere).
        kl: One "sample" of log Q - log P, or "closed_form".
    """

    num_inducing: int | None = None
    precision: PrecisionKind | None = None
    log_precision: float | None = None
    kl: KLKind = "sample"

    def __post_init__(self) -> None:
        if self.precision is not None:
            _check_choice("precision", self.precision, PrecisionKind)
        _check_choice("kl", self.kl, KLKind)
        _check_number(self.num_inducing)

    def build(self, site: Site) -> InducingWeights:
        rows = self.num_inducing or site.fan_in
        inputs = initial_normal(rows, site.fan_in, generator=site.generator)
        outputs = initial_normal(rows, site.out_features, generator=site.generator)
        log_precision = site.first_log_precision(self.log_precision)
        return InducingWeights(outputs, inputs, self.precision or "shared", log_precision, self.kl == "closed_form")

    def build_values(self, site: ValueSite) -> RegressedValues:
        inputs = site.first_inputs(self.num_inducing)
        outputs = site.first_pseudo_outputs(len(inputs))
        # the paper's appendix on deep GPs: 0 in every layer
        log_precision = 0.0 if self.log_precision is None else self.log_precision
        precision = self.precision or "full_per_output"
        return RegressedValues(outputs, inputs, precision, log_precision, self.kl == "closed_form")


@dataclass(frozen=True)
class GlobalInducing(Posterior):
    """The regression on inducing points propagated from the layers below: correlated across layers, the paper's Eq. 11.

    Arguments:
        precision: Pseudo-output precisions "shared" by all outputs, "per_output", "full" (M x M), "full_per_output". None
            stands for "shared" in layers of weights and "full_per_output" in those of Gaussian processes.
        log_precision: First value; None stands for the paper's, 0 in the last layer and -4 elsewhere (2 in Gaussian
            process layers with an identity mean, which begin there and learn faster).
        kl: One "sample" of log Q - log P, or "closed_form" given the inducing activations.
    """

    needs_inducing: ClassVar[bool] = True

    precision: PrecisionKind | None = None
    log_precision: float | None = None
    kl: KLKind = "sample"

    def __post_init__(self) -> None:
        if self.precision is not None:
            _check_choice("precision", self.precision, PrecisionKind)
        _check_choice("kl", self.kl, KLKind)

    def build(self, site: Site) -> InducingWeights:
        assert site.num_inducing is not None
        if site.targets is None:
            outputs = initial_normal(site.num_inducing, site.out_features, generator=site.generator)
        else:
            outputs = site.targets.clone()
        log_precision = site.first_log_precision(self.log_precision)
        return InducingWeights(outputs, None, self.precision or "shared", log_precision, self.kl == "closed_form")

    def build_convolution(self, site: Site, geometry: Geometry, size: tuple[int, int], bias: bool) -> ConvolvedWeights:
        assert site.num_inducing is not None
        if self.precision not in (None, "shared", "per_output"):
            raise ValueError(
                f'a convolution has a precision for each inducing image, "shared" or "per_output", got {self.precision!r}'
            )
        if site.targets is not None:
            raise ValueError(
                "inducing_targets hold one value for each output, but a convolution has pseudo-outputs at every pixel; "
                "leave them out, or set its pseudo_outputs yourself"
            )
        shape = (site.num_inducing, site.out_features, *geometry.output_shape(*size))
        outputs = initial_normal(*shape, generator=site.generator)
        log_precision = site.first_log_precision(self.log_precision)
        closed_form = self.kl == "closed_form"
        return ConvolvedWeights(outputs, geometry, bias, self.precision or "shared", log_precision, closed_form)

    def build_values(self, site: ValueSite) -> RegressedValues:
        assert site.num_inducing is not None
        outputs = site.first_pseudo_outputs(site.num_inducing)
        log_precision = site.first_log_precision(self.log_precision)
        precision = self.precision or "full_per_output"
        return RegressedValues(outputs, None, precision, log_precision, self.kl == "closed_form")


@dataclass(frozen=True)
class OptimalInducing(Posterior):
    """The exact posterior of the last layer given the layers below, for a Gaussian likelihood: the paper's Eq. 7.

    The inducing points are the training inputs, and stay there; the pseudo-outputs are the training targets; the precision
    is that of the likelihood's noise. Nothing is left to learn, and no other last layer has a better ELBO.

    Arguments:
        heteroscedastic: Be the optimum for `HeteroscedasticGaussian`, in layers of weights: exact for the means given the
            noise, whose weights are learned (`inducing.nn.heteroscedastic`). The inducing targets are then [y | g], with
            first values for the noise, such as 0.
    """

    heteroscedastic: bool = False

    needs_inducing: ClassVar[bool] = True

    def build(self, site: Site) -> OptimalWeights | HeteroscedasticWeights:
        targets = self._targets(site)
        if not self.heteroscedastic:
            return OptimalWeights(targets)
        if targets.shape[-1] % 2:
            raise ValueError(
                "OptimalInducing(heteroscedastic=True) needs two outputs for each target, a mean and one for its noise, "
                f"but the network has {targets.shape[-1]}"
            )
        return HeteroscedasticWeights(targets)

    def build_convolution(self, site: Site, geometry: Geometry, size: tuple[int, int], bias: bool) -> Weights:
        raise ValueError(
            "an OptimalInducing posterior is for a last layer that is fully connected or a Gaussian process"
        )

    def build_values(self, site: ValueSite) -> OptimalValues:
        if self.heteroscedastic:
            raise ValueError(
                "OptimalInducing(heteroscedastic=True) is for layers of weights, not for Gaussian processes"
            )
        return OptimalValues(self._targets(site))

    def _targets(self, site: Site | ValueSite) -> Float[Tensor, "M O"]:
        if not site.is_last:
            raise ValueError('an OptimalInducing posterior is for the last layer alone, as in "global->optimal"')
        if site.targets is None:
            raise ValueError(
                "an OptimalInducing posterior needs the training data: pass inducing_points=x, inducing_targets=y, "
                "learn_inducing_locations=False"
            )
        return site.targets


@dataclass(frozen=True)
class DSVI(Posterior):
    """Doubly stochastic variational inference for Gaussian processes (Salimbeni & Deisenroth, 2017).

    Each layer has inducing inputs of its own and q(u) = N(m, S), whitened, with the KL in closed form: no correlation
    between layers. In training the values u are integrated out of each row's marginal.

    Arguments:
        num_inducing: Rows of this layer's own inducing inputs; the default is as many as the network has inducing points,
            else 100.
        initial_scale: First standard deviation of the whitened values; None stands for 1 in the last layer and 1e-5
            elsewhere, so that the layers below begin as their mean functions.
    """

    num_inducing: int | None = None
    initial_scale: float | None = None

    def __post_init__(self) -> None:
        _check_scale(self.initial_scale)
        _check_number(self.num_inducing)

    def build(self, site: Site) -> Weights:
        raise ValueError(_explain_values(self))

    def build_values(self, site: ValueSite) -> WhitenedValues:
        scale = site.first_scale(self.initial_scale)
        return WhitenedValues(site.first_inputs(self.num_inducing), site.out_features, scale)


@dataclass(frozen=True)
class CoupledInducing(Posterior):
    """Inducing points propagated from the layers below, but q(u) = N(m, S) independently of them.

    Functions of neighbouring layers depend on each other, since they share a layer of inducing points; functions further
    apart do not (Ustyuzhaninov et al., 2019; panel B of the paper's figure of graphical models).

    Arguments:
        initial_scale: First standard deviation of the values relative to the prior's; None stands for 1e-5 in all layers
            but the last, and there for the exact posterior given the inducing targets, or for 1 without them.
        kl: One "sample" of log Q - log P, or "closed_form" given the inducing activations.
    """

    needs_inducing: ClassVar[bool] = True

    initial_scale: float | None = None
    kl: KLKind = "sample"

    def __post_init__(self) -> None:
        _check_scale(self.initial_scale)
        _check_choice("kl", self.kl, KLKind)

    def build(self, site: Site) -> Weights:
        raise ValueError(_explain_values(self))

    def build_values(self, site: ValueSite) -> CoupledValues:
        assert site.num_inducing is not None
        rows, outputs = site.num_inducing, site.out_features
        # without data to tell where the inducing points will be, relative to a prior of independent values
        root = torch.eye(rows) if site.root is None else site.root.clone()
        if site.mean is not None:
            mean = site.mean.clone()
        else:
            # the last layer begins at zero, one below it at a draw of its prior: layers above need distinct inputs
            noise = None if site.is_last else initial_normal(rows, outputs, generator=site.generator)
            mean = torch.zeros(rows, outputs) if noise is None else root @ noise.to(root)
        relative_mean = torch.zeros(rows, outputs).to(root)
        relative_root = site.first_scale(self.initial_scale) * torch.eye(rows).to(root)
        if site.targets is not None and self.initial_scale is None:
            # the exact posterior of one layer: A = I + R_0'R_0 / noise, b = A^-1 R_0'(y - m_0) / noise, TT' = A^-1
            gram = torch.eye(rows).to(root) + root.mT @ root / FIRST_VARIANCE
            inverse = torch.linalg.inv(gram.double())
            relative_mean = (inverse @ (root.mT @ (site.targets - mean) / FIRST_VARIANCE).double()).to(root)
            relative_root = torch.linalg.cholesky(inverse).to(root)
        values = CoupledValues(mean, root, relative_mean, relative_root)
        values.use_closed_form = self.kl == "closed_form"
        return values


@dataclass(frozen=True)
class PriorOnly(Posterior):
    """Weights or functions drawn from the prior: nothing is learned, and the KL is zero."""

    def build(self, site: Site) -> PriorWeights:
        return PriorWeights(site.fan_in, site.out_features)

    def build_values(self, site: ValueSite) -> PriorValues:
        return PriorValues()


POSTERIORS: dict[str, type[Posterior]] = {
    "factorised": Factorised,
    "local": LocalInducing,
    "global": GlobalInducing,
    "optimal": OptimalInducing,
    "dsvi": DSVI,
    "coupled": CoupledInducing,
    "prior": PriorOnly,
}


def as_posterior(posterior: Posterior | str | type) -> Posterior:
    """Turn a name into a posterior with its default settings."""
    return lookup("posterior", posterior, Posterior, POSTERIORS)


def posteriors_for_layers(posterior: Posterior | str | type, num_layers: int) -> list[Posterior]:
    """One posterior for each layer of a network; written "A->B", B is for the last layer and A for all others."""
    if isinstance(posterior, str) and "->" in posterior:
        lower, _, last = (part.strip() for part in posterior.partition("->"))
        return [as_posterior(lower)] * (num_layers - 1) + [as_posterior(last)]
    return [as_posterior(posterior)] * num_layers


def _explain_values(posterior: Posterior) -> str:
    return (
        f"a {type(posterior).__name__} posterior is over the values of a Gaussian process, for an inducing.GPLayer; "
        'for weights use "global", "local", "factorised" or "prior"'
    )


def _check_scale(scale: float | None) -> None:
    if scale is not None and not scale > 0:
        raise ValueError(f"initial_scale must be positive, got {scale}")


def _check_number(num_inducing: int | None) -> None:
    if num_inducing is not None and num_inducing < 1:
        raise ValueError(f"num_inducing must be at least 1, got {num_inducing}")


def _check_choice(name: str, value: str, choices: object) -> None:
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(choices)))}, got {value!r}")
