"""Roots of many increasing functions in parallel."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

MAX_STEPS = 200


def find_root(
    function: Callable[[Float[Tensor, "*B"]], Float[Tensor, "*B"]], low: Float[Tensor, "*B"], high: Float[Tensor, "*B"]
) -> Float[Tensor, "*B"]:
    """Return the root of each function in an interval, by Chandrupatla's method (1997).

    It uses inverse quadratic interpolation where this is safe, and bisection elsewhere. Smooth functions need about ten
    steps to machine precision; bisection alone needs fifty. The precision is relative to the root or the interval length.

    Arguments:
        function: Increasing functions, applied elementwise.
        low: Lower ends, where the functions are not positive.
        high: Upper ends, where the functions are not negative.

    Example:
        >>> import torch
        >>> squares = torch.tensor([2.0, 9.0]).double()
        >>> find_root(lambda x: x**2 - squares, torch.zeros(2).double(), squares)
        tensor([1.4142, 3.0000], dtype=torch.float64)
    """
    precision = torch.finfo(low.dtype).eps
    # the root is between a and b; c is the end that was replaced last
    a, b = high, low
    fa, fb = function(a), function(b)
    t = torch.full_like(a, 0.5)
    best = a
    for _ in range(MAX_STEPS):
        x = a + t * (b - a)
        fx = function(x)
        same = fx.sign() == fa.sign()
        c, fc = torch.where(same, a, b), torch.where(same, fa, fb)
        b, fb = torch.where(same, b, a), torch.where(same, fb, fa)
        a, fa = x, fx
        nearer = fa.abs() < fb.abs()
        best, at_best = torch.where(nearer, a, b), torch.where(nearer, fa, fb)
        smallest = precision * (4 * best.abs() + (high - low).abs()) / (b - a).abs()
        if ((smallest > 0.5) | (at_best == 0)).all():
            break
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        quadratic = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        # comparisons are false for NaN from a division by zero
        safe = (phi.square() < xi) & ((1 - phi).square() < 1 - xi) & quadratic.isfinite()
        t = torch.where(safe, quadratic, 0.5)
        smallest = smallest.clamp(0, 0.5).nan_to_num(0.5)
        t = torch.minimum(torch.maximum(t, smallest), 1 - smallest)
    return best
