"""Shape annotations are checked in tests: here for the inner modules, in test_shapes.py for all of them.

Modules that meet the user's own arguments are left out here, so that our messages are tested and not the checker's.
"""

import os
from pathlib import Path

import jaxtyping
import numpy as np
import pytest

jaxtyping.install_import_hook(["inducing.linalg", "inducing.nn.draw"], "beartype.beartype")

import torch  # noqa: E402

# small matrices gain nothing from a second thread, and lose much where cores are shared
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded():
    """Every test starts from the same random state and leaves torch's global settings as they were."""
    torch.manual_seed(0)
    yield
    assert torch.get_default_dtype() == torch.float32


@pytest.fixture(scope="session")
def real_data():
    """The folder that INDUCING_DATA names, or None."""
    named = os.environ.get("INDUCING_DATA")
    return Path(named) if named else None


@pytest.fixture
def uci_folder(real_data, tmp_path, monkeypatch):
    """A data folder with the UCI yacht set: the real one, or a small set in the same format."""
    if real_data is not None:
        return real_data
    write_uci_set(tmp_path / "uci" / "yacht")
    monkeypatch.setenv("INDUCING_DATA", str(tmp_path))
    return tmp_path


def write_uci_set(folder: Path, num_rows: int = 60, num_splits: int = 20, constant_column: bool = False) -> None:
    """Write a set in the format of the Gal splits: six features, a target, ten per cent of the rows for testing."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    features = random.normal(3.0, 2.0, (num_rows, 6))
    if constant_column:
        features[:, 2] = 0.1
    target = 10 + 5 * np.sin(features[:, :1]) + 0.1 * random.normal(size=(num_rows, 1))
    np.savetxt(folder / "data.txt", np.concatenate([features, target], 1))
    np.savetxt(folder / "index_features.txt", np.arange(6.0))
    np.savetxt(folder / "index_target.txt", [6.0])
    np.savetxt(folder / "n_splits.txt", [num_splits], fmt="%d")
    for split in range(num_splits):
        order = random.permutation(num_rows)
        np.savetxt(folder / f"index_test_{split}.txt", order[: num_rows // 10], fmt="%d")
        np.savetxt(folder / f"index_train_{split}.txt", order[num_rows // 10 :], fmt="%d")
