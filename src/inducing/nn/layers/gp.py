"""Gaussian process layers: F_l = f_l(F_{l-1}) with independent functions f_l ~ GP(m, k) for each output.

Drawing a layer is the paper's Algorithm 2 without the data: sample the values at the inducing inputs, and return the
function given these values. Computations are in float64 for any dtype of the network, since covariance matrices of smooth
functions have many small eigenvalues, which float32 does not resolve.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.checks import check_sizes
from inducing.linalg.cholesky import logdet, record_jitter, solve_lower
from inducing.linalg.density import standard_log_density
from inducing.linalg.noise import standard_normal
from inducing.linalg.roots import Roots, find_roots
from inducing.nn.by_name import check_choice
from inducing.nn.context import BuildContext, DrawContext, Shape
from inducing.nn.density import LayerDensity
from inducing.nn.draw import Draw, Function, Variables
from inducing.nn.gp.functions import Identity, JointProcess, Process, Projection, Zero, draw_path
from inducing.nn.kernels import Kernel, KernelModule, Values, as_kernel
from inducing.nn.layers.base import Layer
from inducing.nn.posteriors import Posterior, PriorOnly, as_posterior
from inducing.nn.posteriors.base import ValueContext, ValueModule, ValuePosterior, ValuePrior
from inducing.nn.posteriors.coupled import CoupledValues

MeanKind = Literal["zero", "identity"]
# the distribution of the values at the data given the values at the inducing inputs, in the bound
ConditionalKind = Literal["prior", "tight"]

# the default
JITTER = 1e-6


class GPLayer(Layer):
    """A layer of independent Gaussian processes that share a kernel.

    Arguments:
        in_features: Number of inputs.
        out_features: Number of outputs.
        kernel: A kernel or its name: "squared-exponential", "matern12", "matern32", "matern52", "linear", "arc-cosine".
        mean: "zero", or "identity": the inputs themselves, padded with zeros for more outputs, or projected onto the
            principal components of the inducing points for fewer (Salimbeni & Deisenroth, 2017).
        posterior: A posterior or its name: "global", "local", "dsvi", "coupled", "optimal", "prior".
        jitter: Variance of independent noise in the values, relative to the median variance at the inducing inputs. It is
            part of the model, and the noise cannot be lower.
        num_features: Number of random features for consistent functions (`Network.sample_functions`).
        conditional: Conditional q(f | u) of the values at the data in the bound. "prior": that of the prior, the usual
            choice. "tight": a narrower one with the same mean, which gives a higher bound (the tight-conditional ELBO; see
            the page "Bounds"). It is available in the last layer, for Gaussian noise. Predictions are not affected.

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> layers = [inducing.GPLayer(3, 3, mean="identity"), inducing.GPLayer(3, 1)]
        >>> points = {"inducing_points": x[:10], "inducing_targets": y[:10]}
        >>> network = inducing.Network(layers, **points)
        >>> network(x, num_samples=2).shape
        torch.Size([2, 20, 1])
    """

    kernel: KernelModule
    posterior_spec: ValuePosterior
    posterior: ValueModule
    projection: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel: Kernel | str = "squared-exponential",
        mean: MeanKind = "zero",
        posterior: Posterior | str = "global",
        jitter: float = JITTER,
        num_features: int = 512,
        conditional: ConditionalKind = "prior",
    ) -> None:
        super().__init__()
        check_sizes(in_features=in_features, out_features=out_features, num_features=num_features)
        check_choice("mean", mean, MeanKind)
        check_choice("conditional", conditional, ConditionalKind)
        if not 0 < jitter < 1:
            raise ValueError(f"jitter is relative to the variance and must be between 0 and 1, got {jitter}")
        self.in_features, self.out_features, self.mean = in_features, out_features, mean
        self.kernel_spec, self.posterior_spec = as_kernel(kernel), as_posterior(posterior, ValuePosterior)
        self.jitter, self.num_features, self.conditional = jitter, num_features, conditional
        self.is_built = False

    @property
    def input_shape(self) -> Shape:
        return (self.in_features,)

    @property
    def needs_inducing(self) -> bool:
        # a prior has no inducing inputs of its own, so its function is sampled at the global inducing points
        return self.posterior_spec.needs_inducing or isinstance(self.posterior_spec, PriorOnly)

    @property
    def starts_from_rows(self) -> bool:
        return not self.needs_inducing

    def create(self, context: BuildContext) -> Shape:
        self._check_features(context)
        rows, is_last = context.example_rows, self is context.last_bayesian_layer
        self.kernel = KernelModule(self.kernel_spec, self.in_features).to(None if rows is None else rows.device)
        self.register_buffer("projection", self._initial_projection(rows))
        mean, root = self._mean_at(rows), None
        if rows is not None and not rows.is_meta:
            root = self._factorise(self.kernel(), rows[None].double())[0].root[0].detach().to(rows.dtype)
        values = ValueContext(self.in_features, self.out_features, is_last, context, mean, root)
        self.posterior = self.posterior_spec.build_values(values)
        # otherwise the values at the inducing points are sampled for the parts above
        self.integrates_values = is_last and not context.inducing_used_above_last
        return (self.out_features,)

    def mean_rows(self, rows: Tensor | None) -> Tensor | None:
        return self.posterior.reference_mean if isinstance(self.posterior, CoupledValues) else self._mean_at(rows)

    def draw(self, inducing: Float[Tensor, "#S M in"] | None, context: DrawContext) -> Draw:
        samples, generator = context.num_samples, context.generator
        own = self.posterior.inducing_inputs
        source = inducing if own is None else own[None]
        assert source is not None
        kernel, mean = self.kernel(), self._mean_function(torch.float64)
        # a copy even in float64, since a draw must not change with the parameters
        inputs = source.to(torch.float64, copy=True)
        roots, nugget = self._factorise(kernel, inputs)
        # if no layer above depends on the values, they are integrated out of the marginals, which reduces the variance
        integrate = not (context.consistent or context.joint) and (self.integrates_values or inducing is None)
        at_inputs = mean(inputs).expand(-1, inputs.shape[1], self.out_features)
        whitened, kl, *moments = self.posterior(ValuePrior(roots.root, at_inputs), context, integrate)
        if own is not None and inducing is not None and not self.integrates_values:
            # layers above need the values at the inducing points, so these are sampled, too.
            # The root of the joint covariance has R as its first block, and the new whitened values are N(0, I)
            inputs = torch.cat([part.double().expand(samples, -1, -1) for part in (own[None], inducing)], 1)
            roots, nugget = self._factorise(kernel, inputs, nugget)
            extra = standard_normal((samples, inducing.shape[1], self.out_features), inputs, generator)
            whitened = torch.cat([whitened, extra], 1)
        known, spread = moments if integrate else (whitened, None)
        given = (mean, inputs, roots.inverse, nugget, known, spread)
        process = Process(self.kernel_spec, kernel, *given, samples, generator, self.conditional == "tight")
        function: Function = JointProcess(process) if context.joint else process
        if context.consistent:
            function = draw_path(process, self.num_features)
        # u = m + R a
        values = mean(inputs) + roots.root @ whitened
        above = None
        if inducing is not None and own is not None and self.integrates_values:
            above = function(inducing)
        elif inducing is not None:
            above = values[:, -inducing.shape[1] :].to(inducing.dtype)
        variables = Variables(values, inputs=inputs)
        return Draw(function, above, kl.to(self.dtype), torch.zeros_like(kl, dtype=self.dtype), variables)

    def density(
        self, inducing: Float[Tensor, "#S M in"] | None, variables: Variables, context: DrawContext
    ) -> tuple[Float[Tensor, "S M O"] | None, LayerDensity]:
        values, own = variables.values.double(), self.posterior.inducing_inputs
        source = inducing if own is None else own[None]
        assert source is not None
        kernel, mean, inputs = self.kernel(), self._mean_function(torch.float64), source.double()
        roots, nugget = self._factorise(kernel, inputs)
        prior = ValuePrior(roots.root, mean(inputs).expand(-1, inputs.shape[1], self.out_features))
        if own is not None and inducing is not None and not self.integrates_values:
            # the values at the inducing points were sampled from the prior given u, as in `draw`
            inputs = torch.cat([part.double().expand(context.num_samples, -1, -1) for part in (own[None], inducing)], 1)
            roots, _ = self._factorise(kernel, inputs, nugget)
        self._check_values(values, inputs.shape[1])
        self._check_inputs(variables.inputs, inputs)
        above = None
        if inducing is not None and (own is None or not self.integrates_values):
            above = values[:, -inducing.shape[1] :].to(inducing.dtype)
        # a = R^-1 (u - m), so the density of u is that of a divided by |R|
        whitened = solve_lower(roots.root[:, None], (values - mean(inputs))[:, None])[:, 0]
        volume = self.out_features * logdet(roots.root) / 2
        known, extra = whitened.split([source.shape[1], inputs.shape[1] - source.shape[1]], 1)
        posterior = self.posterior.log_density(known, prior, context) + standard_log_density(extra)
        return above, LayerDensity(posterior - volume, standard_log_density(whitened) - volume)

    def unwhiten(self, inputs: Float[Tensor, "#S N D"], whitened: Float[Tensor, "S N O"]) -> Float[Tensor, "S N O"]:
        """Return the values of the prior at all rows jointly, u = m + R a, for standard normal a."""
        rows = inputs.double()
        mean, root = self._mean_function(torch.float64)(rows), self._factorise(self.kernel(), rows)[0].root
        return (mean + root @ whitened).to(inputs.dtype)

    def whiten(self, inputs: Float[Tensor, "#S N D"], values: Float[Tensor, "S N O"]) -> Float[Tensor, "S N O"]:
        """Return a = R^-1 (u - m), the inverse of `unwhiten`."""
        rows = inputs.double()
        root = self._factorise(self.kernel(), rows)[0].root
        return solve_lower(root[:, None], (values - self._mean_function(torch.float64)(rows))[:, None])[:, 0]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters."""
        return next(self.kernel.parameters()).dtype

    def extra_repr(self) -> str:
        mean = "" if self.mean == "zero" else f"mean={self.mean!r}, "
        conditional = "" if self.conditional == "prior" else f", conditional={self.conditional!r}"
        jitter = "" if self.jitter == JITTER else f", jitter={self.jitter:g}"
        settings = f"{self.in_features}, {self.out_features}, {self.kernel_spec}, {mean}{self.posterior_spec}"
        return settings + conditional + jitter

    def _factorise(
        self, kernel: Values, inputs: Float[Tensor, "#S M D"], nugget: Float[Tensor, "#S"] | None = None
    ) -> tuple[Roots, Float[Tensor, "#S"]]:
        """Return the root R of K + nugget I with its inverse, and the nugget."""
        matrix = self.kernel_spec.matrix(kernel, inputs, inputs)
        if nugget is None:
            nugget = self.jitter * matrix.diagonal(dim1=-2, dim2=-1).median(-1).values
        record_jitter(self.jitter)
        identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        return find_roots(matrix + nugget[:, None, None] * identity), nugget

    def _check_inputs(self, given: Tensor | None, inputs: Float[Tensor, "#S M D"]) -> None:
        """Raise an error if given values are those at other inputs."""
        if given is not None and not torch.allclose(given, inputs, rtol=1e-4, atol=1e-4):
            raise ValueError(
                "the given values are those at other inducing inputs than this network's, so they are other variables. Pass "
                "a draw of a network with the same inducing points"
            )

    def _initial_projection(self, rows: Tensor | None) -> Tensor | None:
        """Return W of the mean function x W, or None if the mean function is the identity or zero."""
        inputs, outputs = self.in_features, self.out_features
        if self.mean == "zero" or inputs == outputs:
            return None
        if inputs < outputs:
            return torch.eye(inputs, outputs)
        if rows is None:
            raise ValueError(
                f'mean="identity" from {inputs} to {outputs} features projects onto principal components of the inputs, '
                'which are unknown. Pass inducing_points, rows of the training inputs, or use mean="zero"'
            )
        # rows of V' are the principal directions
        directions = torch.linalg.svd(rows.double() - rows.double().mean(0), full_matrices=True)[2]
        return directions[:outputs].mT.to(rows.dtype)

    def _mean_at(self, rows: Tensor | None) -> Tensor | None:
        """Return the mean function at these rows, or None if it is zero."""
        return None if rows is None or self.mean == "zero" else self._mean_function(rows.dtype)(rows[None])[0]

    def _mean_function(self, dtype: torch.dtype) -> Function:
        if self.mean == "zero":
            return Zero()
        return Identity() if self.projection is None else Projection(self.projection.to(dtype))
