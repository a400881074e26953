"""Checkpoints: a training run on disk, from which the same command continues bit by bit.

A checkpoint is one safetensors file, written atomically: the parameters, Adam's moments, the history, and a JSON header with
the step, what run it belongs to, and a checksum. The batches and the noise of a step are functions of the seed and the step,
so no random state needs to be kept. The newest two are kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from inducing.files import write_atomically
from inducing.inference.state import TrainingState

FORMAT = 1
KEPT = 2
logger = logging.getLogger("inducing")


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written or read."""


class CheckpointError(RuntimeError):
    """A checkpoint folder cannot be used for this run."""


class Checkpoints:
    """The checkpoints of one run in one folder, used by one process at a time.

    Arguments:
        folder: Where they are; it is made if it is not there.
        run: What identifies the run (recipe, seed, data, parameters). A folder that holds another run is refused.
    """

    def __init__(self, folder: Path, run: dict[str, Any]) -> None:
        self.folder, self.run = folder, run
        self._usable, self._failing = True, False
        self._lock = FileLock(folder / ".lock", timeout=0)

    def __enter__(self) -> Checkpoints:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise CheckpointError(
                f"another process is training in {self.folder}; use another folder, or wait"
            ) from None
        except OSError as error:
            # training goes on without: nothing in memory is lost
            self._usable = False
            self._warn("cannot use", self.folder, error, "training goes on, without checkpoints")
            return self
        for litter in self.folder.glob(".step-*"):
            litter.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def files(self) -> list[Path]:
        """The checkpoints, the newest first."""
        return sorted(self.folder.glob("step-*.safetensors"), reverse=True)

    def save(self, state: TrainingState) -> bool:
        """Write the state; if the disk does not take it, say so once, keep what is there and go on."""
        if not self._usable:
            return False
        tensors, numbers = state.snapshot()
        header = {"format": FORMAT, **numbers, "run": self.run}
        header["sha256"] = _digest(tensors, header)
        path = self.folder / f"step-{state.step:09d}.safetensors"
        try:
            write_atomically(path, save(tensors, {"inducing": json.dumps(header)}))
            for old in self.files()[KEPT:]:
                old.unlink(missing_ok=True)
        except OSError as error:
            if not self._failing:
                self._warn("cannot write", path, error, "training goes on, earlier checkpoints are kept")
            self._failing = True
            return False
        self._failing = False
        return True

    def restore(self, state: TrainingState) -> bool:
        """Put the newest sound checkpoint of this run in place; return whether there was one."""
        for path in self.files():
            try:
                tensors, header = _read(path)
            except (SafetensorError, OSError, ValueError, KeyError) as error:
                rest = [other for other in self.files() if other < path]
                self._warn("cannot read", path, error, "the one before it is used" if rest else "training begins anew")
                # out of the way, so that it does not count as one of the newest
                with suppress(OSError):
                    path.rename(path.with_name(f"corrupt-{path.name}"))
                continue
            if header["run"] != self.run:
                differing = ", ".join(differences(header["run"], self.run))
                raise CheckpointError(
                    f"{self.folder} holds another run, with other {differing}. "
                    "Use another folder, or delete it to begin anew"
                )
            state.restore(tensors, header)
            logger.info("continuing from %s", path)
            return True
        return False

    def _warn(self, what: str, path: Path, error: Exception, consequence: str) -> None:
        warnings.warn(f"{what} {path}: {error}; {consequence}", CheckpointWarning, stacklevel=4)


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """Name what differs between two runs, setting by setting of the recipe."""
    for key, value in ours.items():
        other = theirs.get(key)
        if isinstance(value, dict) and isinstance(other, dict):
            yield from (f"{k} ({other.get(k)} and not {v})" for k, v in value.items() if other.get(k) != v)
        elif other != value:
            yield f"{key} ({other} and not {value})" if isinstance(value, int | str) and key != "network" else key


def checksums(tensors: Iterable[Tensor]) -> list[int]:
    """Checksums of tensors; data that are not tensors are known by their number of rows alone."""
    return [zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes()) for tensor in tensors]


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with safe_open(path, framework="pt") as file:
        header = json.loads((file.metadata() or {})["inducing"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if header["format"] != FORMAT:
        raise ValueError(f"it has format {header['format']}, this version reads {FORMAT}")
    if header.pop("sha256") != _digest(tensors, header):
        raise ValueError("its checksum does not match")
    return tensors, header


def _digest(tensors: dict[str, Tensor], header: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
