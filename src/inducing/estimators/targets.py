"""The encoding of targets: from a user's array to the targets of a network, and back.

An encoding is an immutable value that `fit` learns from the training targets. Regressors use `NumericTargets`, classifiers
`LabelTargets`; both have the same methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int64, Shaped
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from inducing.arrays import as_tensor
from inducing.data.standardise import Standardiser
from inducing.saving.objects import decode_standardiser
from inducing.saving.registry import State, Tensors
from inducing.saving.values import shorten, take
from inducing.tables.errors import counted

# variances are squares and must not overflow
LARGEST = 1e150


@dataclass(frozen=True, eq=False)
class NumericTargets:
    """Numbers, one or several for each row.

    Arguments:
        scale: Standardises real targets. Counts are unchanged.
        ndim: 1 for targets (N,), 2 for (N, O).
    """

    scale: Standardiser
    ndim: int
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
        check_finite_rows("y", columns)
        return columns

    @classmethod
    def fit(cls, y: Float[np.ndarray, "N *O"], weights: Float[np.ndarray, " N"], is_real: bool) -> NumericTargets:
        """Learn the scale of real targets."""
        columns = y.reshape(len(y), -1)
        scale = Standardiser.of(columns, weights)
        if not is_real:
            scale = Standardiser(torch.zeros_like(scale.mean), torch.ones_like(scale.std))
        mean, std = scale
        if (torch.maximum(mean.abs(), std) > LARGEST).any() or (std < 1 / LARGEST).any():
            size = f"{np.abs(columns).max():.2g}"
            raise ValueError(f"y has values of size {size}, whose variance overflows or underflows. Rescale y.")
        return cls(scale, y.ndim)

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
            raise ValueError(f"y has {columns.shape[1]} columns, but warm_start continues with {self.num_targets}")
        return self.scale.apply(columns, torch.float64)

    def decode(self, values: np.ndarray) -> np.ndarray:
        """Values (..., N, O) of the targets in the shape of the user's targets."""
        return values[..., 0] if self.ndim == 1 else values

    def to_state(self) -> State:
        """The encoding as JSON and tensors."""
        return {"ndim": self.ndim}, encode_scale("targets", self.scale)

    @classmethod
    def from_state(cls, state: dict[str, Any], tensors: Tensors) -> NumericTargets:
        """The inverse of `to_state`, from the tensors of the whole estimator."""
        (ndim,) = take(state, "targets", ndim=int)
        found = cls(decode_scale("targets", tensors), ndim)
        if ndim not in (1, 2) or (ndim == 1 and found.num_targets > 1):
            raise ValueError(f"{found.num_targets} targets cannot have {ndim} dimensions")
        return found


@dataclass(frozen=True, eq=False)
class LabelTargets:
    """Class labels of any type.

    Arguments:
        classes: The labels in ascending order.
    """

    classes: Shaped[np.ndarray, " C"]
    scale: ClassVar[tuple[float, float]] = (0.0, 1.0)
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
    def fit(cls, y: Shaped[np.ndarray, " N"], weights: Float[np.ndarray, " N"], is_real: bool) -> LabelTargets:
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
            raise ValueError(f"y has the label {label!r}, but warm_start continues with the classes {known}")
        return as_tensor(np.searchsorted(self.classes, y).astype(np.int64))

    def decode(self, values: np.ndarray) -> np.ndarray:
        """Values of the classes, such as probabilities, unchanged."""
        return values

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
