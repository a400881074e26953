"""The one factorisation, its jitter policy, and the one error it may raise.

Cholesky is blind to the scale of single rows and columns, so jitter is relative to each diagonal entry:
``A + j diag(A)``. A bias column of ones beside a feature of size 1e6 keeps its digits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from inducing.checks import is_known


class Jitter(NamedTuple):
    """How far a matrix may be raised by its own diagonal so that it factorises.

    The first attempt adds ``initial``. As long as it fails, ``first``, ``first * factor``, ... are tried, none above
    ``maximum``; what was needed beyond ``initial`` is reported by a `JitterWarning`.

    Arguments:
        initial: Relative jitter that is always added.
        first: The step after a first failure; ``None`` means ten times the resolution of the dtype.
        factor: Ratio of successive steps.
        maximum: The largest jitter that is still an answer and not a different problem.
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


class JitterWarning(UserWarning):
    """A matrix was factorised only after its diagonal had been raised."""


_recorded: ContextVar[list[float] | None] = ContextVar("recorded", default=None)


@contextmanager
def recorded_jitter() -> Iterator[list[float]]:
    """Collect the jitters inside, for a log: what factorisations need beyond their policy, what processes always have."""
    used: list[float] = []
    token = _recorded.set(used)
    try:
        yield used
    finally:
        _recorded.reset(token)


def record_jitter(amount: float) -> None:
    """Note a relative jitter for the log, if anyone keeps one."""
    if (used := _recorded.get()) is not None:
        used.append(amount)


class FactorisationError(RuntimeError):
    """A matrix could not be factorised. The message names the layer, the likely causes and the remedies."""


_where: ContextVar[str] = ContextVar("where", default="")


@contextmanager
def located(where: str) -> Iterator[None]:
    """Name the layer in errors and warnings from inside, so that the user knows where to look."""
    token = _where.set(f"{where}: ")
    try:
        yield
    finally:
        _where.reset(token)


class Factorisation(NamedTuple):
    """A matrix and its lower factor: ``A = TT'``.

    Arguments:
        matrix: A as it was factorised, with the jitter that it needed.
        factor: T.
    """

    matrix: Float[Tensor, "*batch N N"]
    factor: Float[Tensor, "*batch N N"]


def cholesky(matrix: Float[Tensor, "*batch N N"], jitter: Jitter = NO_JITTER_AT_FIRST) -> Float[Tensor, "*batch N N"]:
    """Return the lower factor T of ``A = TT'``, as `factorise` finds it."""
    return factorise(matrix, jitter).factor


def factorise(matrix: Float[Tensor, "*batch N N"], jitter: Jitter = NO_JITTER_AT_FIRST) -> Factorisation:
    """Factorise ``A = TT'``; only those members of the batch that fail are given more jitter.

    Where numbers are not known (`torch.compile`, `torch.export`, the meta device) nothing is retried: the initial jitter
    is added, and a failure is NaN.
    """
    raised = _raised(matrix, jitter.initial)
    factor, info = torch.linalg.cholesky_ex(raised)
    if not is_known(matrix) or not info.any():
        return Factorisation(raised, factor)
    amount = torch.full(info.shape, jitter.initial, dtype=matrix.dtype, device=matrix.device)
    for step in jitter.ladder(matrix.dtype)[1:]:
        amount = torch.where(info != 0, step, amount)
        raised = _raised(matrix, amount[..., None])
        factor, info = torch.linalg.cholesky_ex(raised)
        if not info.any():
            warnings.warn(_where.get() + _explain_jitter(matrix, step), JitterWarning, stacklevel=3)
            record_jitter(step)
            return Factorisation(raised, factor)
    raise FactorisationError(_where.get() + _explain_failure(matrix, jitter))


def factorise_without_jitter(matrix: Float[Tensor, "*batch N N"]) -> Factorisation | None:
    """Factorise ``A = TT'`` as it is; None if that fails for a member of the batch."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    return None if info.any() else Factorisation(matrix, factor)


def solve_lower(factor: Float[Tensor, "#S #G N N"], right: Float[Tensor, "#S #G N C"]) -> Float[Tensor, "#S #G N C"]:
    """T^-1 b. Samples that share T become columns of one solve."""
    return _solve(factor, right, upper=False)


def solve_lower_transposed(
    factor: Float[Tensor, "#S #G N N"], right: Float[Tensor, "#S #G N C"]
) -> Float[Tensor, "#S #G N C"]:
    """T^-T b. Samples that share T become columns of one solve."""
    return _solve(factor.mT, right, upper=True)


def logdet(factor: Float[Tensor, "*batch N N"]) -> Float[Tensor, "*batch"]:
    """log |TT'|."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _solve(factor: Tensor, right: Tensor, *, upper: bool) -> Tensor:
    samples, columns = right.shape[0], right.shape[-1]
    if factor.shape[0] == 1 < samples:
        folded = right.permute(1, 2, 0, 3).flatten(2)[None]
        solved = torch.linalg.solve_triangular(factor, folded, upper=upper)
        return solved[0].unflatten(-1, (samples, columns)).permute(2, 0, 1, 3)
    return torch.linalg.solve_triangular(factor, right, upper=upper)


def _raised(matrix: Tensor, amount: Tensor | float) -> Tensor:
    """A + j diag(A)."""
    if isinstance(amount, float) and amount == 0.0:
        return matrix
    return matrix + torch.diag_embed(amount * matrix.diagonal(dim1=-2, dim2=-1))


def _explain_jitter(matrix: Tensor, step: float) -> str:
    return (
        f"a {matrix.shape[-1]} x {matrix.shape[-1]} matrix in {matrix.dtype} needed a relative jitter of {step:.1e}, "
        "so the result is approximate. Near-duplicate inducing points at a high precision are the usual cause, "
        "float64 (`network.double()`) the usual remedy."
    )


def _explain_failure(matrix: Tensor, jitter: Jitter) -> str:
    what = f"cannot factorise a {tuple(matrix.shape)} batch of matrices in {matrix.dtype}"
    if not torch.isfinite(matrix).all():
        return (
            f"{what}: it contains NaN or inf. Likely causes: a learning rate that is too high, or inputs so large that "
            "their squares overflow. Remedies: lower the learning rate, standardise the inputs and targets, "
            "or use float64 (`network.double()`)."
        )
    return (
        f"{what}, not even with a relative jitter of {jitter.maximum:.0e}. Likely causes: inducing points that are "
        "near-duplicates at a high precision, or activations that differ by many orders of magnitude. Remedies: use "
        "fewer or more distinct inducing points, standardise the inputs, lower the learning rate, or use float64 "
        "(`network.double()`)."
    )
