"""Input validation."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

# dtypes that all layers support
DTYPES = (torch.float32, torch.float64)


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a hint in brackets, for an error message, if a known name is similar, else an empty string."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def check_known(what: str, name: object, known: Iterable[str]) -> None:
    """Raise an error with the known names if a name is unknown."""
    names = list(known)
    if not isinstance(name, str) or name not in names:
        hint = did_you_mean(name, names)
        raise ValueError(f"unknown {what} {name!r}{hint}. Known names: {', '.join(names)}.")


def check_kind(name: str, value: object, kind: type, wanted: str) -> None:
    """Check that a value is an instance of a class. ``wanted`` describes it in the error message."""
    if not isinstance(value, kind):
        what = (
            f"the class {value.__name__}; pass an instance" if isinstance(value, type) else f"a {type(value).__name__}"
        )
        raise TypeError(f"{name} must be {wanted}, got {what}")


def check_whole(name: str, value: object, wanted: str = "a whole number") -> int:
    """Check that a value is a Python or NumPy integer of at least 1."""
    if not isinstance(value, Integral):
        raise TypeError(f"{name} must be {wanted}, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


def check_between(name: str, value: object, least: float, most: float, hint: str = "") -> None:
    """Check that a value is a number in a range."""
    if not isinstance(value, int | float | np.number) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number between {least:g} and {most:g}, got a {type(value).__name__}{hint}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be between {least:g} and {most:g}, got {value}{hint}")


def check_seed(seed: object) -> int:
    """Check that a seed is a Python or NumPy integer. None is an error, since it would suggest a random seed."""
    if not isinstance(seed, Integral):
        raise TypeError(
            f"seed must be a whole number, got {seed!r}. For a different result each time pass random.getrandbits(31)"
        )
    return int(seed)


def refuse_inference_mode(what: str) -> None:
    """Raise an error inside torch.inference_mode(), where torch computes no gradients."""
    if torch.is_inference_mode_enabled():
        raise RuntimeError(f"{what} needs gradients, which torch.inference_mode() disables. Call {what} outside of it")


def check_device(name: str) -> torch.device:
    """Check that torch can use a device on this machine."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device).tolist()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).partition(". ")[0].splitlines()[0]
        raise ValueError(f'device {name!r} is not available ({reason}). Use e.g. device="cpu"') from error
    return device


def is_known(value: Tensor) -> bool:
    """Return whether the values of a tensor can be read.

    They cannot be read while torch compiles a graph, nor on the meta device. Code that branches on values must then use a
    form without branches.
    """
    return not (torch.compiler.is_compiling() or value.is_meta)


def check_tensor(name: str, value: object) -> Tensor:
    """Check that a value is a torch tensor."""
    if not isinstance(value, Tensor):
        advice = f"convert it, e.g. torch.as_tensor({name}, dtype=torch.float32)"
        parts = value.values() if isinstance(value, Mapping) else value
        if isinstance(parts, Iterable) and any(isinstance(part, Tensor) for part in parts):
            advice = "concatenate its tensors, e.g. torch.cat([a.flatten(1), b.flatten(1)], 1)"
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}; {advice}")
    return value


def check_finite(name: str, value: Tensor, missing: bool = False) -> None:
    """Raise an error with the row numbers if a tensor has NaN or inf. Values that cannot be read are not checked.

    With ``missing``, NaN is allowed: it marks a missing value.
    """
    if not (is_known(value) and value.is_floating_point()):
        return
    # one pass over the data; only if the sum is not finite, look at each value, since the sum may overflow
    if math.isfinite(value.detach().sum().item()):
        return
    bad = torch.isinf(value) if missing else ~torch.isfinite(value)
    if bad.any():
        rows = (
            bad.flatten(1).any(1).nonzero().flatten().tolist() if value.ndim > 1 else bad.nonzero().flatten().tolist()
        )
        shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        raise ValueError(
            f"{name} contains {'inf' if missing else 'NaN or inf'} in {len(rows)} of {len(value)} rows (rows {shown}); "
            "remove these rows or impute the values"
        )


def check_inputs(x: object, shape: tuple[int, ...], dtype: torch.dtype, name: str = "x") -> Tensor:
    """Check that x is a batch of inputs (B, *shape) in the dtype of the network."""
    x = check_tensor(name, x)
    if tuple(x.shape[1:]) != shape or x.ndim != len(shape) + 1:
        expected = ", ".join(["B", *map(str, shape)])
        hint = "; use x[None] for a single row" if tuple(x.shape) == shape else ""
        raise ValueError(f"{name} must have shape ({expected}), got {tuple(x.shape)}{hint}")
    if not x.is_floating_point():
        raise TypeError(f"{name} is {x.dtype} but the network is {dtype}; convert the data, {name}.to({dtype})")
    check_dtype(name, x, dtype)
    check_finite(name, x)
    return x


def check_precision(dtype: torch.dtype) -> None:
    """Raise an error if a network has half precision."""
    if dtype not in DTYPES:
        raise TypeError(
            f"the network is {dtype}, which has too few digits for its factorisations. Use network.float(). For mixed "
            "precision, run under torch.autocast: draws stay in float32, and data rows are run in half precision"
        )


def check_dtype(name: str, value: Tensor, dtype: torch.dtype) -> None:
    """Check that a floating point tensor has the dtype of the network. Integer labels are checked elsewhere."""
    check_precision(dtype)
    if value.is_floating_point() and value.dtype != dtype:
        # half precision is too inaccurate for the factorisations of a network
        other = f", or the network, network.to({value.dtype})" if value.dtype in DTYPES else ""
        raise TypeError(
            f"{name} is {value.dtype} but the network is {dtype}; convert the data, {name}.to({dtype}){other}"
        )


def check_weights(weights: object, rows: int, name: str = "weights") -> Tensor:
    """Check that there is one finite, non-negative weight for each row, and that not all are zero."""
    weights = check_tensor(name, weights)
    if tuple(weights.shape) != (rows,):
        raise ValueError(f"{name} must have shape ({rows},), one for each row, got {tuple(weights.shape)}")
    check_finite(name, weights)
    if (weights < 0).any():
        row = int((weights < 0).nonzero()[0])
        raise ValueError(f"{name} must not be negative, but row {row} has {weights[row].item():g}")
    if not (weights > 0).any():
        raise ValueError(f"all {name} are zero. At least one weight must be positive")
    return weights


def check_rows(x: Tensor, y: Tensor) -> None:
    """Check that x and y have the same number of rows, at least one."""
    if len(x) == 0:
        raise ValueError("x has zero rows. Pass at least one row")
    if len(x) != len(y):
        raise ValueError(f"x and y must have the same number of rows, got {len(x)} and {len(y)}")


def check_sizes(**sizes: int) -> None:
    """Raise an error if a size is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
