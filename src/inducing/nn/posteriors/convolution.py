"""Global inducing points in a convolution: regression of pseudo-outputs on the patches of inducing images."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from inducing.linalg.convolution.geometry import Geometry
from inducing.linalg.convolution.patches import conv_cross, conv_gram, conv_sums, patches
from inducing.linalg.convolution.reparameterisation import convolution_with_gradients
from inducing.linalg.density import regression_log_density, statistics_log_density
from inducing.linalg.long_products import BLOCK
from inducing.linalg.noise import initial_normal
from inducing.linalg.precision import Precision
from inducing.linalg.pseudo_likelihood import PseudoOutputs, Statistics, by_group
from inducing.linalg.regression import WeightSample, regress, regress_statistics
from inducing.linalg.reparameterisation import Solution
from inducing.nn.context import DrawContext
from inducing.nn.posteriors.base import WeightContext, WeightModule
from inducing.nn.posteriors.pseudo_likelihood import PrecisionKind, PseudoLikelihood


class ConvolvedWeights(PseudoLikelihood, WeightModule):
    """Posterior over the weights of a convolution, with a precision for each inducing image.

    Arguments:
        pseudo_outputs: Initial V, at each pixel.
        geometry: The patches.
        bias: Whether a column of ones is added to the patches.
        precision: "shared" by all outputs, or "per_output".
        log_precision: Initial log-precision.
        closed_form_kl: Whether the KL is computed in closed form.
    """

    sampled_kl_has_low_variance = True

    def __init__(
        self,
        pseudo_outputs: Float[Tensor, "M O h w"],
        geometry: Geometry,
        bias: bool,
        precision: PrecisionKind,
        log_precision: float,
        closed_form_kl: bool,
    ) -> None:
        super().__init__(pseudo_outputs, None, precision, log_precision, closed_form_kl)
        self.geometry, self.bias = geometry, bias

    @classmethod
    def build(
        cls,
        context: WeightContext,
        num_inducing: int,
        precision: PrecisionKind,
        log_precision: float,
        closed_form_kl: bool,
    ) -> ConvolvedWeights:
        """Check the settings and draw initial pseudo-outputs."""
        geometry = context.geometry
        assert geometry is not None
        if precision not in ("shared", "per_output"):
            raise ValueError(
                f'a convolution has one precision per inducing image, "shared" or "per_output", got {precision!r}'
            )
        if context.targets is not None:
            raise ValueError(
                "inducing_targets have one value per output, but a convolution has pseudo-outputs at every pixel. "
                "Leave them out, or set pseudo_outputs of the layer's posterior"
            )
        size = geometry.output_shape(*context.network.input_shape[1:])
        outputs = initial_normal(num_inducing, context.out_features, *size, generator=context.network.generator)
        return cls(outputs, geometry, context.layout.bias, precision, log_precision, closed_form_kl)

    def forward(
        self, inputs: Float[Tensor, "#S M C H W"] | None, prior: Precision, context: DrawContext
    ) -> WeightSample:
        assert inputs is not None
        images, _, *pixels = self.pseudo_outputs.shape
        root, closed_form_kl = self.precision_root(), self.uses_closed_form_kl or context.closed_form_regressions
        if self._has_few_patches(prior):
            return regress(
                *self._patches(inputs),
                prior,
                context.num_samples,
                generator=context.generator,
                closed_form_kl=closed_form_kl,
            )

        def with_gradients(solution: Solution, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
            maps, values, precisions = (each.to(dtype) for each in (inputs, self.pseudo_outputs, root.square()))
            return convolution_with_gradients(solution, maps, values, precisions, prior.to(dtype), self.geometry)

        return regress_statistics(
            lambda dtype: self._statistics(inputs.to(dtype), root.to(dtype).square()),
            inputs.dtype,
            min(images * math.prod(pixels), BLOCK),
            prior,
            context.num_samples,
            attach_gradients=with_gradients,
            generator=context.generator,
            closed_form_kl=closed_form_kl,
        )

    def log_density(
        self,
        weights: Float[Tensor, "S F O"],
        inputs: Float[Tensor, "#S M *F"] | None,
        prior: Precision,
        context: DrawContext,
    ) -> Float[Tensor, " S"]:
        assert inputs is not None
        if self._has_few_patches(prior):
            return regression_log_density(weights, *self._patches(inputs), prior)
        statistics = self._statistics(inputs.double(), self.precision_root().double().square())
        return statistics_log_density(weights, statistics, prior)

    def outputs_at(self, inputs: Float[Tensor, "1 M C H W"], weights: Float[Tensor, "F O"]) -> Float[Tensor, "M O h w"]:
        """The pseudo-outputs whose regression gives these weights. They have the boundary of the inducing images."""
        images, _, height, width = self.pseudo_outputs.shape
        return (self._patches(inputs)[0][0] @ weights).unflatten(0, (images, height, width)).permute(0, 3, 1, 2)

    def _has_few_patches(self, prior: Precision) -> bool:
        """Return whether there are fewer patches than features. The dual form is then cheaper, and needs the patches."""
        images, _, *pixels = self.pseudo_outputs.shape
        return images * math.prod(pixels) < prior.size

    def _patches(self, inputs: Float[Tensor, "#S M C H W"]) -> tuple[Float[Tensor, "#S n F"], PseudoOutputs]:
        """Return the patches as rows of a regression, with a column of ones for the bias, and their pseudo-outputs."""
        _, outputs, *pixels = self.pseudo_outputs.shape
        rows = patches(inputs, self.geometry).flatten(1, 3)
        rows = functional.pad(rows, (0, 1), value=1.0) if self.bias else rows
        values = self.pseudo_outputs.permute(0, 2, 3, 1).reshape(-1, outputs)
        return rows, PseudoOutputs(values, self.precision_root().repeat_interleave(math.prod(pixels), 1))

    def _statistics(self, inputs: Float[Tensor, "#S M C H W"], weights: Float[Tensor, "G M"]) -> Statistics:
        """Return X' Lambda X and X' Lambda v, where X has a column of ones for the bias."""
        geometry, values = self.geometry, self.pseudo_outputs.to(inputs.dtype)
        gram, cross = conv_gram(inputs, weights, geometry), conv_cross(inputs, weights, values, geometry)
        if self.bias:
            sums = conv_sums(inputs, weights, geometry)
            count = weights.sum(-1) * math.prod(values.shape[2:])
            corner = count[None, :, None, None].expand(len(gram), -1, -1, -1)
            gram = torch.cat([gram, sums[:, :, None]], 2)
            gram = torch.cat([gram, torch.cat([sums[..., None], corner], 2)], 3)
            last = (values.sum((2, 3)) * weights.mT).sum(0).expand(len(cross), 1, -1)
            cross = torch.cat([cross, last], 1)
        return Statistics(gram, by_group(cross, len(weights)))
