"""Input shape, initial inducing points and initial pseudo-outputs of a network."""

from __future__ import annotations

from numbers import Integral

from torch import Generator, Tensor, nn

from inducing.checks import DTYPES, check_finite, check_tensor
from inducing.linalg.noise import initial_normal
from inducing.nn.context import Shape
from inducing.nn.layers.base import Layer
from inducing.nn.likelihoods.targets import may_be_missing
from inducing.nn.posteriors.optimal import OptimalInducing


def infer_input_shape(first: nn.Module, inducing_points: Tensor | None, given: int | Shape | None) -> Shape:
    """Return the shape of one input row: the given shape, else that of the inducing points, else that of the first layer.

    Inducing images may have a different height and width.
    """
    shape = (int(given),) if isinstance(given, int | Integral) else None if given is None else tuple(given)
    if inducing_points is not None:
        points = tuple(check_tensor("inducing_points", inducing_points).shape[1:])
        are_images = shape is not None and len(points) == len(shape) == 3 and points[0] == shape[0]
        if inducing_points.ndim < 2 or (shape is not None and points != shape and not are_images):
            expected = "features" if shape is None else ", ".join(map(str, shape))
            raise ValueError(
                f"inducing_points must be (M, {expected}), got {tuple(inducing_points.shape)}; "
                "pass rows of the training inputs, e.g. x[:100]"
            )
        return points if shape is None else shape
    if shape is not None:
        return shape
    if isinstance(first, Layer) and first.input_shape is not None:
        return first.input_shape
    raise ValueError("the shape of the inputs is unknown. Pass input_shape, e.g. input_shape=(1, 28, 28)")


def initial_inducing_points(
    points: Tensor | None, number: int | None, shape: Shape, generator: Generator | None
) -> Tensor | None:
    """Copy the user's inducing points, or draw inducing points from N(0, 1)."""
    if points is not None:
        if points.dtype not in DTYPES:
            raise TypeError(
                f"inducing_points must be floating point, float32 or float64, got {points.dtype}; use x.float()"
            )
        if len(points) == 0:
            raise ValueError("inducing_points has zero rows; pass rows of the training inputs, e.g. x[:100]")
        if number is not None and number != len(points):
            raise ValueError(
                f"num_inducing is {number} but inducing_points has {len(points)} rows; leave one of them out"
            )
        check_finite("inducing_points", points)
        return points.detach().clone()
    if number is None:
        return None
    if number < 1:
        raise ValueError(f"num_inducing must be at least 1, got {number}")
    return initial_normal(number, *shape, generator=generator)


def initial_targets(targets: Tensor | None, points: Tensor | None, ending: Layer | None) -> Tensor | None:
    """Convert the inducing targets to initial pseudo-outputs of the last layer."""
    if targets is None:
        return None
    targets = check_tensor("inducing_targets", targets)
    if points is None or ending is None or not ending.needs_inducing:
        raise ValueError(
            "inducing_targets need a last layer with a GlobalInducing posterior, but the network does not end in one. "
            "Leave them out"
        )
    # the exact posterior leaves out missing targets
    is_optimal = isinstance(ending.posterior_spec, OptimalInducing)
    check_finite("inducing_targets", targets, missing=is_optimal and may_be_missing(targets))
    outputs = ending.out_features
    if not targets.is_floating_point() and targets.ndim == 1:
        if targets.numel() and not (int(targets.min()) >= 0 and int(targets.max()) < outputs):
            raise ValueError(f"inducing_targets has labels outside 0..{outputs - 1}, the classes of the last layer")
        targets = nn.functional.one_hot(targets.long(), outputs)
    if tuple(targets.shape) != (len(points), outputs):
        raise ValueError(
            f"inducing_targets must be ({len(points)}, {outputs}), one row for each inducing point, "
            f"got {tuple(targets.shape)}" + ("; use y[:, None]" if targets.ndim == 1 else "")
        )
    return targets.detach().to(points.dtype)
