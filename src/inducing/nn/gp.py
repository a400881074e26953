"""Gaussian process layers: F_l = f_l(F_{l-1}) with independent functions f_l ~ GP(m, k) for each output.

Drawing a layer is the paper's Algorithm 2 without the data: sample the values at the inducing inputs, and return the
function given them. All of it is done in float64, whatever the dtype of the network: covariance matrices of smooth
functions have few large eigenvalues and very many small ones, which float32 does not keep.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from inducing.linalg.cholesky import cholesky, record_jitter
from inducing.linalg.noise import standard_normal
from inducing.nn.draw import Draw, Function
from inducing.nn.kernels import Kernel, KernelModule, Values, as_kernel
from inducing.nn.layers import Layer, Place, Shape
from inducing.nn.posteriors import Posterior, PriorOnly, as_posterior
from inducing.nn.processes import Identity, Process, Projection, Zero, draw_path
from inducing.nn.sites import ValueSite
from inducing.nn.values import CoupledValues, InducingValues

MeanKind = Literal["zero", "identity"]


class GPLayer(Layer):
    """A layer of independent Gaussian processes that share a kernel.

    Arguments:
        in_features: Number of inputs.
        out_features: Number of outputs.
        kernel: A kernel or its name: "squared-exponential", "matern12", "matern32", "matern52", "linear", "arc-cosine".
        mean: "zero", or "identity": the inputs themselves, padded with zeros for more outputs, or projected onto the
            principal components of the inducing points for fewer (Salimbeni & Deisenroth, 2017).
        posterior: A posterior or its name: "global", "local", "dsvi", "coupled", "optimal", "prior".
        jitter: Independent noise in the values, relative to the median variance at the inducing inputs. It is a part of the
            model, and its floor of noise: targets whose noise is below it cannot be told from those above.
        num_features: Random features for a consistent function (`Network.sample_functions`).

    Example:
        >>> import inducing, torch
        >>> x, y = torch.randn(20, 3), torch.randn(20, 1)
        >>> layers = [inducing.GPLayer(3, 3, mean="identity"), inducing.GPLayer(3, 1)]
        >>> network = inducing.Network(layers, inducing_points=x[:10], inducing_targets=y[:10])
        >>> network(x, num_samples=2).shape
        torch.Size([2, 20, 1])
    """

    kernel: KernelModule
    posterior: InducingValues
    projection: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel: Kernel | str = "squared-exponential",
        mean: MeanKind = "zero",
        posterior: Posterior | str = "global",
        jitter: float = 1e-6,
        num_features: int = 512,
    ) -> None:
        super().__init__()
        if in_features < 1 or out_features < 1:
            raise ValueError(f"in_features and out_features must be at least 1, got {in_features} and {out_features}")
        if mean not in ("zero", "identity"):
            raise ValueError(f'mean must be "zero" or "identity", got {mean!r}')
        if not 0 < jitter < 1:
            raise ValueError(f"jitter is relative to the variance and must lie between 0 and 1, got {jitter}")
        if num_features < 1:
            raise ValueError(f"num_features must be at least 1, got {num_features}")
        self.in_features, self.out_features, self.mean = in_features, out_features, mean
        self.kernel_spec, self.posterior_spec = as_kernel(kernel), as_posterior(posterior)
        self.jitter, self.num_features = jitter, num_features
        self.is_built = False

    @property
    def input_shape(self) -> Shape:
        return (self.in_features,)

    @property
    def needs_inducing(self) -> bool:
        # without values of its own, a prior's function is known where the inducing points pass through it
        return self.posterior_spec.needs_inducing or isinstance(self.posterior_spec, PriorOnly)

    @property
    def starts_from_rows(self) -> bool:
        return not self.needs_inducing

    def build(self, place: Place) -> Shape:
        self._check_place(place)
        device = None if place.rows is None else place.rows.device
        self.kernel = KernelModule(self.kernel_spec, self.in_features).to(device)
        self.register_buffer("projection", self._first_projection(place.rows))
        root = None
        if place.rows is not None and not place.rows.is_meta:
            root = self._factorise(self.kernel(), place.rows[None].double())[0][0].detach().to(place.rows.dtype)
        site = ValueSite(
            self.in_features,
            self.out_features,
            place.num_inducing,
            place.targets,
            place.is_last,
            place.rows,
            self.mean_rows(place.rows),
            root,
            place.generator,
        )
        self.posterior = self.posterior_spec.build_values(site)
        self.is_last, self.is_built = place.is_last, True
        return (self.out_features,)

    def mean_rows(self, rows: Tensor | None) -> Tensor | None:
        if self.is_built and isinstance(self.posterior, CoupledValues):
            return self.posterior.reference_mean
        return None if rows is None or self.mean == "zero" else self._mean_function(rows.dtype)(rows[None])[0]

    def draw(
        self,
        inducing: Float[Tensor, "#S M in"] | None,
        num_samples: int,
        generator: Generator | None = None,
        consistent: bool = False,
    ) -> Draw:
        self._check_built()
        own = self.posterior.inducing_inputs
        source = inducing if own is None else own[None]
        assert source is not None
        kernel, mean = self.kernel(), self._mean_function(torch.float64)
        # a copy, also of float64: a draw must not change with the parameters
        inputs = source.to(torch.float64, copy=True)
        root, nugget = self._factorise(kernel, inputs)
        # where no layer above regresses on the values, they are integrated out of the rows' marginals: less noise
        integrate = not consistent and (self.is_last or inducing is None)
        at_inputs = mean(inputs).expand(-1, inputs.shape[1], self.out_features)
        whitened, kl, *moments = self.posterior(root, at_inputs, num_samples, generator, integrate)
        if own is not None and inducing is not None and not self.is_last:
            # layers above regress on this one at the inducing points, so its values there are sampled too, and known:
            # the root of the joint covariance has R as its first block, and the new whitened values are N(0, I)
            inputs = torch.cat([part.double().expand(num_samples, -1, -1) for part in (own[None], inducing)], 1)
            root, nugget = self._factorise(kernel, inputs, nugget)
            extra = standard_normal((num_samples, inducing.shape[1], self.out_features), root, generator)
            whitened = torch.cat([whitened, extra], 1)
        known, spread = moments if integrate else (whitened, None)
        process = Process(self.kernel_spec, kernel, mean, inputs, root, nugget, known, spread, num_samples, generator)
        function: Function = draw_path(process, self.num_features) if consistent else process
        outputs = None
        if inducing is not None and own is not None and self.is_last:
            outputs = function(inducing)
        elif inducing is not None:
            # u = m + R a
            outputs = (mean(inputs) + root @ whitened)[:, -inducing.shape[1] :].to(inducing.dtype)
        return Draw(function, outputs, kl.to(self.dtype), torch.zeros_like(kl, dtype=self.dtype))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters."""
        return next(self.kernel.parameters()).dtype

    def extra_repr(self) -> str:
        mean = "" if self.mean == "zero" else f"mean={self.mean!r}, "
        return f"{self.in_features}, {self.out_features}, {self.kernel_spec}, {mean}{self.posterior_spec}"

    def _factorise(
        self, kernel: Values, inputs: Float[Tensor, "#S M D"], nugget: Float[Tensor, "#S"] | None = None
    ) -> tuple[Float[Tensor, "#S M M"], Float[Tensor, "#S"]]:
        """The root R of K + nugget I, and the nugget."""
        matrix = self.kernel_spec.matrix(kernel, inputs, inputs)
        if nugget is None:
            nugget = self.jitter * matrix.diagonal(dim1=-2, dim2=-1).median(-1).values
        record_jitter(self.jitter)
        identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        return cholesky(matrix + nugget[:, None, None] * identity), nugget

    def _first_projection(self, rows: Tensor | None) -> Tensor | None:
        """W of the mean function x W, where it is not the identity or zero."""
        inputs, outputs = self.in_features, self.out_features
        if self.mean == "zero" or inputs == outputs:
            return None
        if inputs < outputs:
            return torch.eye(inputs, outputs)
        if rows is None:
            raise ValueError(
                f'mean="identity" from {inputs} to {outputs} features projects onto principal components, and what reaches '
                'this layer is not known; pass inducing_points, rows of the training inputs, or use mean="zero"'
            )
        # rows of V' are the principal directions
        directions = torch.linalg.svd(rows.double() - rows.double().mean(0), full_matrices=True)[2]
        return directions[:outputs].mT.to(rows.dtype)

    def _mean_function(self, dtype: torch.dtype) -> Function:
        if self.mean == "zero":
            return Zero()
        return Identity() if self.projection is None else Projection(self.projection.to(dtype))
