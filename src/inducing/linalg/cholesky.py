"""Cholesky factorisation, its jitter policy, and triangular solves.

The accuracy of a Cholesky factorisation does not depend on the scale of single rows and columns. Jitter is therefore
relative to each diagonal entry: ``A + j diag(A)``. A bias column of ones next to a feature of size 1e6 keeps its digits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.checks import is_known
from inducing.errors import FactorisationError, JitterWarning


class Jitter(NamedTuple):
    """Jitter policy: the multiples of its own diagonal that may be added to a matrix until it can be factorised.

    The first attempt adds ``initial``. If it fails, ``first``, ``first * factor``, ... are tried, up to ``maximum``.
    A `JitterWarning` reports any jitter beyond ``initial``.

    Arguments:
        initial: Relative jitter that is always added.
        first: Jitter after the first failure. Default: ten times the machine epsilon of the dtype.
        factor: Ratio of successive jitters.
        maximum: The largest jitter that is tried. A larger one would change the problem.
    """

    initial: float = 0.0
    first: float | None = None
    factor: float = 10.0
    maximum: float = 1e-3

    def ladder(self, dtype: torch.dtype) -> list[float]:
        """List the jitters to try, in order."""
        steps = [self.initial]
        step = max(self.first or 10.0 * torch.finfo(dtype).eps, self.initial * self.factor)
        while step <= self.maximum:
            steps.append(step)
            step *= self.factor
        return steps


NO_JITTER_AT_FIRST = Jitter()
# from this many columns on, MKL solves two to three times faster from the right
MANY_COLUMNS = 16


_recorded: ContextVar[list[float] | None] = ContextVar("recorded", default=None)


@contextmanager
def recorded_jitter() -> Iterator[list[float]]:
    """Collect the relative jitters that are used inside the context.

    These are the jitters beyond ``Jitter.initial`` and the fixed jitters of Gaussian processes.
    """
    used: list[float] = []
    token = _recorded.set(used)
    try:
        yield used
    finally:
        _recorded.reset(token)


def record_jitter(amount: float) -> None:
    """Record a relative jitter, inside a `recorded_jitter` context."""
    if (used := _recorded.get()) is not None:
        used.append(amount)


_layer: ContextVar[tuple[str, object] | None] = ContextVar("layer", default=None)


@contextmanager
def located(name: str, layer: object) -> Iterator[None]:
    """Prefix the errors and warnings raised inside the context with the name and the description of the layer."""
    token = _layer.set((name, layer))
    try:
        yield
    finally:
        _layer.reset(token)


def _where() -> str:
    layer = _layer.get()
    return "" if layer is None else f"{layer[0]} {layer[1]}: "


class Factorisation(NamedTuple):
    """A matrix and its lower factor: ``A = TT'``.

    Arguments:
        matrix: A, including its jitter.
        factor: T.
    """

    matrix: Float[Tensor, "*batch N N"]
    factor: Float[Tensor, "*batch N N"]


def cholesky(matrix: Float[Tensor, "*batch N N"], jitter: Jitter = NO_JITTER_AT_FIRST) -> Float[Tensor, "*batch N N"]:
    """Return the lower factor T of ``A = TT'``. See `factorise`."""
    return factorise(matrix, jitter).factor


def factorise(matrix: Float[Tensor, "*batch N N"], jitter: Jitter = NO_JITTER_AT_FIRST) -> Factorisation:
    """Factorise ``A = TT'``. Only the matrices of the batch that fail get more jitter.

    Under `torch.compile`, under `torch.export` and on the meta device there are no retries: the initial jitter is added,
    and a failure gives NaN.
    """
    raised = _add_jitter(matrix, jitter.initial)
    factor, info = torch.linalg.cholesky_ex(raised)
    if not is_known(matrix) or not info.any():
        return Factorisation(raised, factor)
    amount = torch.full(info.shape, jitter.initial, dtype=matrix.dtype, device=matrix.device)
    for step in jitter.ladder(matrix.dtype)[1:]:
        amount = torch.where(info != 0, step, amount)
        raised = _add_jitter(matrix, amount[..., None])
        factor, info = torch.linalg.cholesky_ex(raised)
        if not info.any():
            warnings.warn(_where() + _explain_jitter(matrix, step), JitterWarning, stacklevel=3)
            record_jitter(step)
            return Factorisation(raised, factor)
    raise FactorisationError(_where() + _explain_failure(matrix, jitter))


def factorise_without_jitter(matrix: Float[Tensor, "*batch N N"]) -> Factorisation | None:
    """Factorise ``A = TT'`` without jitter. Return None if this fails for any matrix of the batch."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    return None if info.any() else Factorisation(matrix, factor)


def solve_lower(factor: Float[Tensor, "#S #G N N"], right: Float[Tensor, "#S #G N C"]) -> Float[Tensor, "#S #G N C"]:
    """Return T^-1 b. Samples that share T become columns of one solve."""
    return _solve(factor, right, upper=False)


def solve_lower_transposed(
    factor: Float[Tensor, "#S #G N N"], right: Float[Tensor, "#S #G N C"]
) -> Float[Tensor, "#S #G N C"]:
    """Return T^-T b. Samples that share T become columns of one solve."""
    return _solve(factor.mT, right, upper=True)


def multiply_lower(factor: Float[Tensor, "#S G N N"], right: Float[Tensor, "S G N C"]) -> Float[Tensor, "S G N C"]:
    """Return T b. Samples that share T become columns of one product."""
    if len(factor) == 1 < len(right):
        return _as_columns(right, lambda columns: factor @ columns)
    return factor @ right


def logdet(factor: Float[Tensor, "*batch N N"]) -> Float[Tensor, "*batch"]:
    """Return log |TT'|."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _solve(factor: Tensor, right: Tensor, *, upper: bool) -> Tensor:
    if factor.shape[0] == 1 < right.shape[0]:
        return _as_columns(right, lambda columns: _solve_columns(factor, columns, upper))
    return _solve_columns(factor, right, upper)


def _as_columns(right: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function of columns to all samples at once: (S, G, N, C) as (1, G, N, S * C)."""
    samples, columns = right.shape[0], right.shape[-1]
    found = function(right.permute(1, 2, 0, 3).flatten(2)[None])
    return found[0].unflatten(-1, (samples, columns)).permute(2, 0, 1, 3)


def _solve_columns(factor: Tensor, right: Tensor, upper: bool) -> Tensor:
    if right.shape[-1] < MANY_COLUMNS:
        return torch.linalg.solve_triangular(factor, right, upper=upper)
    # x = F^-1 b as x' = b' F^-T
    return torch.linalg.solve_triangular(factor.mT, right.mT, upper=not upper, left=False).mT


def _add_jitter(matrix: Tensor, amount: Tensor | float) -> Tensor:
    """Return A + j diag(A)."""
    if isinstance(amount, float) and amount == 0.0:
        return matrix
    return matrix + torch.diag_embed(amount * matrix.diagonal(dim1=-2, dim2=-1))


def _explain_jitter(matrix: Tensor, step: float) -> str:
    return (
        f"a {matrix.shape[-1]} x {matrix.shape[-1]} matrix in {matrix.dtype} needed a relative jitter of {step:.1e}, "
        "so the result is approximate. The usual cause is near-duplicate inducing points with a high precision; "
        "use float64 (`network.double()`)."
    )


def _explain_failure(matrix: Tensor, jitter: Jitter) -> str:
    what = f"cannot factorise a {tuple(matrix.shape)} batch of matrices in {matrix.dtype}"
    if not torch.isfinite(matrix).all():
        return (
            f"{what}: it contains NaN or inf. The learning rate may be too high, or the inputs so large that their "
            "squares overflow: lower the learning rate, standardise the inputs and targets, or use float64 "
            "(`network.double()`)."
        )
    return (
        f"{what}, even with a relative jitter of {jitter.maximum:.0e}. Inducing points may be near-duplicates with a "
        "high precision, or activations may differ by many orders of magnitude: use fewer or more distinct inducing "
        "points, standardise the inputs, lower the learning rate, or use float64 (`network.double()`)."
    )
