"""What is asked of a user's tensors, and the messages when it is not so."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from numbers import Integral

import torch
from torch import Tensor

# the dtypes in which layers of all kinds work
DTYPES = (torch.float32, torch.float64)


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A hint for the end of a message about an unknown name, if one that is known looks like it."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_kind(name: str, value: object, kind: type, wanted: str) -> None:
    """Ask for an object of a kind, and say in words which."""
    if not isinstance(value, kind):
        what = f"the class {value.__name__}; call it" if isinstance(value, type) else f"a {type(value).__name__}"
        raise TypeError(f"{name} must be {wanted}, got {what}")


def check_whole(name: str, value: object, wanted: str = "a whole number") -> int:
    """Ask for a whole number of Python or NumPy that is at least 1."""
    if not isinstance(value, Integral):
        raise TypeError(f"{name} must be {wanted}, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


def check_seed(seed: object) -> int:
    """Ask for a whole number of Python or NumPy; None would look like fresh randomness."""
    if not isinstance(seed, Integral):
        raise TypeError(
            f"seed must be a whole number, got {seed!r}. For another result each time pass random.getrandbits(31)"
        )
    return int(seed)


def refuse_inference_mode(what: str) -> None:
    """Raise an error inside torch.inference_mode(), where torch keeps no gradients."""
    if torch.is_inference_mode_enabled():
        raise RuntimeError(
            f"{what} needs gradients, which torch.inference_mode() switches off. Call {what} outside of it"
        )


def check_device(name: str) -> torch.device:
    """Ask for a device that this machine has."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device).tolist()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).partition(". ")[0].splitlines()[0]
        raise ValueError(f'device must be one that torch has here, such as "cpu", got {name!r} ({reason})') from error
    return device


def is_known(value: Tensor) -> bool:
    """Whether its numbers can be looked at: not inside a compiled graph, and not on torch's meta device, which has none.

    What depends on it must have a form without branches, which is then taken.
    """
    return not (torch.compiler.is_compiling() or value.is_meta)


def check_tensor(name: str, value: object) -> Tensor:
    """Ask for a torch tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor, got {type(value).__name__}; "
            f"convert it, e.g. torch.as_tensor({name}, dtype=torch.float32)"
        )
    return value


def check_finite(name: str, value: Tensor) -> None:
    """Refuse NaN and inf, and say in which rows they are. Values that are not known are not looked at."""
    if not (is_known(value) and value.is_floating_point()):
        return
    # one pass; a sum that overflows is looked at again
    if math.isfinite(value.detach().sum().item()):
        return
    bad = ~torch.isfinite(value)
    if bad.any():
        rows = (
            bad.flatten(1).any(1).nonzero().flatten().tolist() if value.ndim > 1 else bad.nonzero().flatten().tolist()
        )
        shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        raise ValueError(
            f"{name} contains NaN or inf in {len(rows)} of {len(value)} rows (rows {shown}); "
            "remove those rows or impute their values"
        )


def check_inputs(x: object, shape: tuple[int, ...], dtype: torch.dtype, name: str = "x") -> Tensor:
    """Ask for a batch of inputs (B, *shape) in the dtype of the network."""
    x = check_tensor(name, x)
    if tuple(x.shape[1:]) != shape or x.ndim != len(shape) + 1:
        expected = ", ".join(["B", *map(str, shape)])
        hint = "; a single row needs a batch axis, x[None]" if tuple(x.shape) == shape else ""
        raise ValueError(f"{name} must have shape ({expected}), got {tuple(x.shape)}{hint}")
    if not x.is_floating_point():
        raise TypeError(f"{name} is {x.dtype} but the network is {dtype}; convert the data, {name}.to({dtype})")
    check_dtype(name, x, dtype)
    check_finite(name, x)
    return x


def check_dtype(name: str, value: Tensor, dtype: torch.dtype) -> None:
    """Ask for the dtype of the network; labels are integers and have their own check."""
    if value.is_floating_point() and value.dtype != dtype:
        # half precision has too few digits for the factorisations of a network
        other = f", or the network, network.to({value.dtype})" if value.dtype in DTYPES else ""
        raise TypeError(
            f"{name} is {value.dtype} but the network is {dtype}; convert the data, {name}.to({dtype}){other}"
        )


def check_weights(weights: object, rows: int) -> Tensor:
    """Ask for one finite weight for each row, none negative and not all zero."""
    weights = check_tensor("weights", weights)
    if tuple(weights.shape) != (rows,):
        raise ValueError(f"weights must have shape ({rows},), one for each row, got {tuple(weights.shape)}")
    check_finite("weights", weights)
    if (weights < 0).any():
        row = int((weights < 0).nonzero()[0])
        raise ValueError(f"weights must not be negative, but row {row} has {weights[row].item():g}")
    if not (weights > 0).any():
        raise ValueError("all weights are zero: there is nothing to learn from")
    return weights


def check_rows(x: Tensor, y: Tensor) -> None:
    """Ask for as many targets as inputs, and for at least one."""
    if len(x) == 0:
        raise ValueError("there are no data: x has zero rows")
    if len(x) != len(y):
        raise ValueError(f"x and y must have as many rows as each other, got {len(x)} and {len(y)}")
