"""The encoding of targets: from a user's array to the targets of a network, and back.

An encoding is an immutable value that `fit` learns from the training targets. Regressors use `NumericTargets`, classifiers
`LabelTargets`; both have the same methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int64, Shaped
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from inducing.arrays import as_tensor
from inducing.checks import check_known
from inducing.data.standardise import Standardiser
from inducing.estimators.likelihoods import EXACT
from inducing.nn.likelihoods import Likelihood
from inducing.prediction.log_scale import LogScale
from inducing.saving.objects import decode_standardiser
from inducing.saving.registry import State, Tensors
from inducing.saving.values import shorten, take
from inducing.tables.errors import counted

# arrays or tensors
Values = TypeVar("Values", np.ndarray, Tensor)
# variances are squares and must not overflow
LARGEST = 1e150
TRANSFORMS = ("none", "log", "auto")
# "auto" is "log" for positive targets with a skewness above the first number, if the skewness of their logarithm is below
# the second number times that
LEAST_SKEWNESS, SKEWNESS_RATIO = 1.0, 0.5


@dataclass(frozen=True, eq=False)
class NumericTargets:
    """Numbers, one or several for each row. Some of several may be missing (NaN).

    Arguments:
        scale: Standardises real targets, or their logarithm. Counts are unchanged.
        ndim: 1 for targets (N,), 2 for (N, O).
        is_log: Whether the network predicts the logarithm, for each target.
    """

    scale: Standardiser
    ndim: int
    is_log: tuple[bool, ...]
    tensors: ClassVar[tuple[str, ...]] = ("targets.mean", "targets.std")

    @staticmethod
    def check(y: Any, estimator: str) -> Float[np.ndarray, "N *O"]:
        """Check a user's targets and convert them to an array. ``estimator`` is a name for error messages."""
        settings = {"ensure_2d": False, "input_name": "y", "estimator": estimator, "copy": True}
        try:
            columns = check_array(y, dtype=np.float64, ensure_all_finite=False, **settings)
        except ValueError as error:
            if not any(isinstance(value, str) for value in np.ravel(np.asarray(y, dtype=object))):
                raise
            advice = "Regression needs numbers; use a classifier for classes"
            raise ValueError(f"y contains text: {error}. {advice}.") from error
        if columns.ndim == 2 and columns.shape[1] > 1:
            check_finite_rows("y", np.where(np.isnan(columns), 0.0, columns))
        else:
            check_finite_rows("y", columns)
        return columns

    @classmethod
    def fit(
        cls,
        y: Float[np.ndarray, "N *O"],
        weights: Float[np.ndarray, " N"],
        is_real: bool,
        is_log: tuple[bool, ...] = (),
    ) -> NumericTargets:
        """Learn the scale of real targets. Default: none is on a log scale."""
        columns = y.reshape(len(y), -1)
        is_log = is_log or (False,) * columns.shape[1]
        columns = take_logs(columns, is_log)
        scale = Standardiser.of(columns, weights)
        if not is_real:
            scale = Standardiser(torch.zeros_like(scale.mean), torch.ones_like(scale.std))
        mean, std = scale
        if (torch.maximum(mean.abs(), std) > LARGEST).any() or (std < 1 / LARGEST).any():
            size = f"{np.nanmax(np.abs(columns)):.2g}"
            raise ValueError(f"y has values of size {size}, whose variance overflows or underflows. Rescale y.")
        return cls(scale, y.ndim, is_log)

    @property
    def num_targets(self) -> int:
        """Number of targets of a row."""
        return len(self.scale.mean)

    # the network predicts each target
    num_outputs = num_targets

    def encode(self, y: Float[np.ndarray, "N *O"]) -> Float[Tensor, "N O"]:
        """The targets of the network."""
        columns = y.reshape(len(y), -1)
        if columns.shape[1] != self.num_targets:
            raise ValueError(f"y has {columns.shape[1]} columns, but the model was fitted to {self.num_targets}")
        return self.scale.apply(take_logs(columns, self.is_log), torch.float64)

    def decode(self, values: Values) -> Values:
        """Values (..., N, O) of the targets in the shape of the user's targets."""
        return values[..., 0] if self.ndim == 1 else values

    def to_original_scale(self, likelihood: Likelihood) -> tuple[Likelihood, Tensor | float, Tensor | float]:
        """The likelihood, location and scale of a `Predictive` on the original scale of the targets."""
        if any(self.is_log):
            return LogScale(likelihood, *self.scale, torch.tensor(self.is_log)), 0.0, 1.0
        return likelihood, *self.scale

    def to_state(self) -> State:
        """The encoding as JSON and tensors."""
        return {"ndim": self.ndim, "is_log": [*self.is_log]}, encode_scale("targets", self.scale)

    @classmethod
    def from_state(cls, state: dict[str, Any], tensors: Tensors) -> NumericTargets:
        """The inverse of `to_state`, from the tensors of the whole estimator."""
        scale = decode_scale("targets", tensors)
        # files of version 0.1.0 have no log scale
        state = {"is_log": [False] * len(scale.mean)} | state
        ndim, is_log = take(state, "targets", ndim=int, is_log=list[bool])
        found = cls(scale, ndim, tuple(is_log))
        if ndim not in (1, 2) or (ndim == 1 and found.num_targets > 1):
            raise ValueError(f"{found.num_targets} targets cannot have {ndim} dimensions")
        if len(is_log) != found.num_targets:
            raise ValueError(f"is_log must be given for {found.num_targets} targets, got {shorten(is_log)}")
        return found


@dataclass(frozen=True, eq=False)
class LabelTargets:
    """Class labels of any type.

    Arguments:
        classes: The labels in ascending order.
    """

    classes: Shaped[np.ndarray, " C"]
    tensors: ClassVar[tuple[str, ...]] = ()
    num_targets: ClassVar[int] = 1

    @staticmethod
    def check(y: Any, estimator: str) -> Shaped[np.ndarray, " N"]:
        """Check a user's labels and convert them to an array."""
        y = column_or_1d(narrow_labels(y), warn=True)
        missing = np.flatnonzero(pd.isna(y))
        if len(missing):
            # scikit-learn's checks look for these words
            place = f"{counted(len(missing), 'row')} (first in row {missing[0]})"
            raise ValueError(f"y contains NaN or None in {place}. Remove them.")
        check_classification_targets(y)
        return y

    @classmethod
    def fit(cls, y: Shaped[np.ndarray, " N"]) -> LabelTargets:
        """Learn the classes."""
        return cls(np.unique(y))

    @property
    def num_outputs(self) -> int:
        """Number of classes."""
        return len(self.classes)

    def encode(self, y: Shaped[np.ndarray, " N"]) -> Int64[Tensor, " N"]:
        """The positions of the labels among the classes."""
        unknown = np.setdiff1d(y, self.classes)
        if len(unknown):
            label, known = unknown.tolist()[0], self.classes.tolist()
            raise ValueError(f"y has the label {label!r}, but the fitted classes are {known}")
        return as_tensor(np.searchsorted(self.classes, y).astype(np.int64))

    def decode(self, values: Values) -> Values:
        """Values of the classes, such as probabilities, unchanged."""
        return values

    def to_original_scale(self, likelihood: Likelihood) -> tuple[Likelihood, Tensor | float, Tensor | float]:
        """The likelihood, location and scale of a `Predictive`."""
        return likelihood, 0.0, 1.0

    def to_state(self) -> State:
        """The encoding as JSON and tensors."""
        values = self.classes.tolist()
        if not all(map(_is_label, values)):
            raise TypeError(f"labels of type {type(values[0]).__name__} cannot be saved. Use numbers or text.")
        dtype = "object" if self.classes.dtype == object else self.classes.dtype.str
        return {"classes": {"dtype": dtype, "values": values}}, {}

    @classmethod
    def from_state(cls, state: dict[str, Any], tensors: Tensors) -> LabelTargets:
        """The inverse of `to_state`. Text has the width of the longest label, whatever the file declares."""
        dtype, values = take(take(state, "targets", classes=dict)[0], "classes", dtype=str, values=list)
        try:
            if np.dtype(dtype).kind not in "biufUO" or not all(map(_is_label, values)):
                raise ValueError("numbers or text are needed")
            # NumPy 1 would only warn
            if np.dtype(dtype).kind in "iu" and any(_is_outside(np.iinfo(dtype), value) for value in values):
                raise ValueError("numbers are too large or too small")
            classes = np.array(values, dtype=str if np.dtype(dtype).kind == "U" else dtype)
            if classes.tolist() != values or not np.array_equal(np.unique(classes), classes):
                raise ValueError("labels must have this dtype, be different and in order")
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"labels of the dtype {shorten(dtype)} cannot be {shorten(values)}: {error}") from error
        return cls(classes)


def choose_log_scale(
    transform: str, likelihood: str, y: Float[np.ndarray, "N *O"], weights: Float[np.ndarray, " N"] | None = None
) -> tuple[bool, ...]:
    """Choose for each target whether the network predicts its logarithm.

    Arguments:
        transform: "none", "log", or "auto": the logarithm of positive targets with a skewness above 1, if it has less than
            half of their skewness, in absolute value.
        likelihood: The name of the likelihood. A log scale needs Gaussian noise.
        y: The training targets.
        weights: Weights of the rows. Default: 1.
    """
    check_known("target_transform", transform, TRANSFORMS)
    columns, is_normal = y.reshape(len(y), -1), likelihood in ("auto", *EXACT.values())
    if transform == "log" and not is_normal:
        advice = "Use the likelihood 'gaussian' or 'heteroscedastic', or target_transform 'none'"
        raise ValueError(f"target_transform 'log' does not support the likelihood {likelihood!r}. {advice}.")
    if transform == "log" and (wrong := columns[columns <= 0]).size:
        raise ValueError(f"target_transform 'log' needs positive targets, but a target is {wrong[0]:g}. Use 'none'.")
    if transform != "auto" or not is_normal:
        return (transform == "log",) * columns.shape[1]
    weights = np.ones(len(y)) if weights is None else weights
    known = [(column[seen], weights[seen]) for column, seen in zip(columns.T, ~np.isnan(columns.T), strict=True)]
    return tuple(bool((column > 0).all()) and _is_log_better(column, shares) for column, shares in known)


def numeric_effect_targets(
    y: Float[np.ndarray, "N *O"],
    is_log: tuple[bool, ...],
    names: Sequence[str] = (),
    weights: Float[np.ndarray, " N"] | None = None,
) -> pd.DataFrame:
    """Standardised numbers, on which text columns with many levels have effects. Missing ones stay missing (NaN).

    Default names: y, or y1, y2, ...
    """
    columns = take_logs(y.reshape(len(y), -1), is_log)
    names = names or ["y"] if y.ndim == 1 else names or [f"y{k + 1}" for k in range(columns.shape[1])]
    scale = Standardiser.of(columns, weights)
    return pd.DataFrame(scale.apply(columns, torch.float64).numpy(), columns=list(names))


def observed_rows(y: Shaped[np.ndarray, "N *O"]) -> Bool[np.ndarray, " N"]:
    """Which rows have a target that is not missing. Raise an error if a column has none."""
    missing = pd.isna(y.reshape(len(y), -1))
    if (empty := missing.all(0)).any():
        column = int(np.flatnonzero(empty)[0])
        raise ValueError(f"column {column} of y has only NaN, so nothing can be learned about it. Remove this column.")
    return ~missing.all(1)


def label_effect_targets(y: Shaped[np.ndarray, " N"]) -> pd.DataFrame:
    """Whether each row has each class but the first: numbers on which text columns with many levels have effects.

    A single class has a column of ones.
    """
    classes = np.unique(y)
    classes = classes[1:] if len(classes) > 1 else classes
    return pd.DataFrame((y[:, None] == classes).astype(float), columns=list(map(str, classes.tolist())))


def take_logs(columns: Float[np.ndarray, "N O"], is_log: tuple[bool, ...]) -> Float[np.ndarray, "N O"]:
    """The logarithm of some columns."""
    if (wrong := columns[:, is_log][columns[:, is_log] <= 0]).size:
        raise ValueError(f"targets on a log scale must be positive, but a target is {wrong[0]:g}")
    return np.where(is_log, np.log(columns, where=np.array(is_log), out=np.zeros_like(columns)), columns)


def _is_log_better(column: Float[np.ndarray, " N"], weights: Float[np.ndarray, " N"]) -> bool:
    skewness = _skewness(column, weights)
    return skewness > LEAST_SKEWNESS and abs(_skewness(np.log(column), weights)) < SKEWNESS_RATIO * skewness


def _skewness(values: Float[np.ndarray, " N"], weights: Float[np.ndarray, " N"]) -> float:
    """E[(y - m)^3] / s^3, or 0 for a constant."""
    centred = values / np.abs(values).max() if values.any() else values
    centred = centred - np.average(centred, weights=weights)
    variance = np.average(centred**2, weights=weights)
    return float(np.average(centred**3, weights=weights) / variance**1.5) if variance > 0 else 0.0


def _is_label(value: object) -> bool:
    return isinstance(value, bool | int | float | str)


def _is_outside(limits: np.iinfo, value: object) -> bool:
    return isinstance(value, int) and not limits.min <= value <= limits.max


def narrow_labels(y: Any) -> Any:
    """Convert labels of pandas and Python objects to the narrowest NumPy dtype, and return others unchanged.

    scikit-learn would convert booleans and integers of pandas to floats, which merges integers above 2^53.
    """
    array = np.asarray(y, dtype=object) if isinstance(y, pd.Series | pd.Index | pd.api.extensions.ExtensionArray) else y
    if not (isinstance(array, np.ndarray) and array.dtype == object and array.ndim == 1) or pd.isna(array).any():
        return array
    return pd.Series(array, dtype=object).infer_objects().to_numpy()


def check_finite_rows(name: str, values: Float[np.ndarray, "N *D"], advice: str = "") -> None:
    """Raise an error with the place of the first NaN or infinite value. The advice is about NaN."""
    # scikit-learn's checks look for these words
    infinity = f"infinity or a value too large for {values.dtype!r}"
    for found, which, remedy in (("NaN", np.isnan(values), advice), (infinity, np.isinf(values), "")):
        if which.any():
            rows, first = np.unique(np.nonzero(which)[0]), " and column ".join(map(str, np.argwhere(which)[0]))
            place = f"{counted(len(rows), 'row')} (first in row {first})"
            raise ValueError(f"Input {name} contains {found} in {place}. Remove these rows{remedy}.")


def encode_scale(name: str, scale: Standardiser) -> Tensors:
    """The tensors of a standardiser, with names."""
    return {f"{name}.{moment}": value for moment, value in scale._asdict().items()}


def decode_scale(name: str, tensors: Tensors, columns: int | None = None) -> Standardiser:
    """The inverse of `encode_scale`, for a number of columns. Default: any number."""
    scale = decode_standardiser({moment: tensors[f"{name}.{moment}"] for moment in Standardiser._fields}, name)
    shape = (scale.mean.numel() if columns is None else columns,)
    if any(moment.shape != shape or moment.dtype != torch.float64 for moment in scale):
        raise ValueError(f"mean and std of the {name} must be {shape[0]} numbers in float64")
    return scale
