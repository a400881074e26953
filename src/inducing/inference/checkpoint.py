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

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from inducing.files import write_atomically
from inducing.inference.state import TrainingState

# raised when an older version could not read what is written
FORMAT = 2
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
        run: What identifies the run (recipe without num_steps, seed, data, parameters). A folder that holds another run is
            refused.
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
        """Put the newest sound checkpoint of this run in place; return whether there was one.

        A file that is damaged is put aside with a `CheckpointWarning`, and the one before it is used. A file that is whole,
        but was not written by this version for this run, raises a `CheckpointError`.
        """
        for path in self.files():
            try:
                tensors, header = _read(path)
            except (SafetensorError, OSError, ValueError, RecursionError) as error:
                rest = [other for other in self.files() if other < path]
                self._warn("cannot read", path, error, "the one before it is used" if rest else "training begins anew")
                # out of the way, so that it does not count as one of the newest
                with suppress(OSError):
                    path.rename(path.with_name(f"corrupt-{path.name}"))
                continue
            run = header.get("run")
            if isinstance(run, dict) and run != self.run:
                raise CheckpointError(
                    f"{self.folder} holds another run, with other {', '.join(differences(run, self.run))}. "
                    "Use another folder, or delete it to begin anew"
                )
            try:
                if not isinstance(run, dict) or header.keys() != {"format", "run", *state.snapshot()[1]}:
                    raise ValueError(f"its header has the entries {str(sorted(header))[:200]}")
                state.restore(tensors, header)
            except ValueError as error:
                raise CheckpointError(
                    f"{path} is not a checkpoint of this run: {error}. Delete it to continue from the one before it"
                ) from error
            logger.info("continuing from %s", path)
            return True
        return False

    def _warn(self, what: str, path: Path, error: Exception, consequence: str) -> None:
        warnings.warn(f"{what} {path}: {error}; {consequence}", CheckpointWarning, stacklevel=4)


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """Name what differs between two runs, setting by setting of the recipe."""
    for key in [*ours, *(theirs.keys() - ours.keys())]:
        value, other = ours.get(key), theirs.get(key)
        if isinstance(value, dict) and isinstance(other, dict):
            yield from (f"{name} ({was} and not {is_now})" for name, was, is_now in _changed(other, value))
        elif other != value:
            short = isinstance(value, int | str) and key != "network"
            yield f"{key} ({str(other)[:80]} and not {value})" if short else key


def _changed(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name in [*ours, *(theirs.keys() - ours.keys())]:
        if theirs.get(name) != ours.get(name):
            yield name, str(theirs.get(name))[:80], str(ours.get(name))


def checksums(tensors: Iterable[Tensor]) -> list[int]:
    """Checksums of tensors; data that are not tensors are known by their number of rows alone."""
    return [zlib.crc32(_bytes(tensor)) for tensor in tensors]


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the header of a file; a ValueError says how it is damaged."""
    if not path.is_file():
        raise ValueError("it is not a regular file")
    with safe_open(path, framework="pt") as file:
        content = (file.metadata() or {}).get("inducing")
        if content is None:
            raise ValueError("inducing.fit did not write it")
        header = json.loads(content)
        # copies in memory: a mapped file could change below the run
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    if not isinstance(header, dict) or type(header.get("format")) is not int:
        raise CheckpointError(
            f"{path} has no header that inducing.fit writes. Delete it to continue from the one before it"
        )
    if header["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has format {header['format']}, but this version of inducing reads {FORMAT}. Use the version that wrote "
            "it, or another folder"
        )
    if header.pop("sha256", None) != _digest(tensors, header):
        raise ValueError("its checksum does not match")
    return tensors, header


def _digest(tensors: dict[str, Tensor], header: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(_bytes(tensors[name]))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    # NumPy does not have all dtypes, e.g. bfloat16
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
