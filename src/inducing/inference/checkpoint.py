"""Checkpoints: a training run on disk, from which the same call continues with identical numbers.

A checkpoint is one safetensors file, ``step-000001234.safetensors``, written atomically. It holds the parameters, Adam's
moments, the history, and a JSON header with the step, the identity of the run and a checksum. Batches and noise of a step
are functions of the seed and the step, so no random state is stored. The newest two checkpoints are kept.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from inducing.errors import CheckpointError, CheckpointWarning
from inducing.files import digest, write_atomically
from inducing.inference.identity import differences
from inducing.inference.recipes import Recipe
from inducing.inference.state import StopReason, TrainingState

# version of the file format, increased when older versions cannot read new files
FORMAT = 2
# key of the header in the metadata of safetensors
ENTRY = "inducing"
NUM_KEPT = 2
EXPLANATIONS = {
    StopReason.NUM_STEPS: "all steps are done",
    StopReason.CALLBACK: "a callback stopped it",
    StopReason.PATIENCE: "the objective did not increase for patience steps",
    StopReason.HELD_OUT: "the log-likelihood of held-out rows did not increase any more",
}


class Checkpoints:
    """The checkpoints of one run in one folder, used by one process at a time.

    Arguments:
        folder: The folder. It is created if it does not exist.
        run: The identity of the run: recipe without num_steps, seed, data, parameters. A folder with checkpoints of another
            run is an error.
    """

    def __init__(self, folder: Path, run: dict[str, Any]) -> None:
        self.folder, self.run = folder, run
        self._usable, self._failing = True, False

    @contextmanager
    def locked(self) -> Iterator[Checkpoints]:
        """Create the folder, and lock it for other processes inside a ``with`` block."""
        # imported here, since few runs need it
        from filelock import FileLock, Timeout

        lock = FileLock(self.folder / ".lock", timeout=0)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
            for unfinished in self.folder.glob(".step-*"):
                unfinished.unlink(missing_ok=True)
        except Timeout:
            raise CheckpointError(
                f"another process is training in {self.folder}. Use another folder, or wait"
            ) from None
        except OSError as error:
            # training continues, since the state in memory is not lost
            self._usable = False
            self._warn("cannot use", self.folder, error, "training continues without checkpoints")
        try:
            yield self
        finally:
            lock.release()

    def files(self) -> list[Path]:
        """Return the paths of the checkpoints, newest first."""
        return sorted(self.folder.glob("step-*.safetensors"), reverse=True)

    def save(self, state: TrainingState) -> bool:
        """Write the state and return whether this succeeded. The first failure gives a warning."""
        if not self._usable:
            return False
        tensors, numbers = state.snapshot()
        header = {"format": FORMAT, **numbers, "run": self.run}
        header["sha256"] = digest(header, tensors, with_shapes=False)
        path = self.folder / f"step-{state.step:09d}.safetensors"
        try:
            write_atomically(path, save(tensors, {ENTRY: json.dumps(header)}))
            for old in self.files()[NUM_KEPT:]:
                old.unlink(missing_ok=True)
        except OSError as error:
            if not self._failing:
                self._warn("cannot write", path, error, "training continues, and earlier checkpoints are kept")
            self._failing = True
            return False
        self._failing = False
        return True

    def restore(self, state: TrainingState) -> bool:
        """Load the newest intact checkpoint into the state, and return whether there was one.

        A damaged file is renamed to ``corrupt-...`` with a `CheckpointWarning`, and the previous checkpoint is used. A file
        that cannot be read, or belongs to another run or format, raises a `CheckpointError`.
        """
        for path in self.files():
            try:
                tensors, header = _read(path)
            except ValueError as damage:
                older = any(other < path for other in self.files())
                self._warn(
                    "cannot read", path, damage, "the previous checkpoint is used" if older else "training starts again"
                )
                # renamed, so that it is not counted as one of the newest
                with suppress(OSError):
                    path.rename(path.with_name(f"corrupt-{path.name}"))
                continue
            run = header.pop("run", None)
            if isinstance(run, dict) and run != self.run:
                raise CheckpointError(
                    f"{self.folder} has checkpoints of another run with other {', '.join(differences(run, self.run))}. "
                    "Use another folder, or delete it to start again"
                )
            try:
                if not isinstance(run, dict):
                    raise ValueError(f"the header has the entries {str(sorted(header))[:200]}")
                state.restore(tensors, header)
            except ValueError as error:
                raise CheckpointError(
                    f"{path} is not a checkpoint of this run: {error}. Delete it to continue from the previous checkpoint"
                ) from error
            return True
        return False

    def _warn(self, what: str, path: Path, error: Exception, consequence: str) -> None:
        warnings.warn(f"{what} {path}: {error}; {consequence}", CheckpointWarning, stacklevel=4)


def resume(state: TrainingState, recipe: Recipe, folder: Path) -> str:
    """Set the number of steps of a restored run to that of its recipe, and return a message for the user.

    A finished run stays finished unless num_steps was raised.
    """
    before, state.num_steps = state.num_steps, recipe.num_steps
    if recipe.num_steps < state.step:
        raise CheckpointError(
            f"num_steps is {recipe.num_steps}, but the run in {folder} has already taken {state.step} steps. Use at least "
            f"num_steps={state.step}, or another folder"
        )
    if recipe.num_steps > before:
        state.stopped = None
    elif recipe.num_steps == state.step:
        state.stopped = state.stopped or StopReason.NUM_STEPS
    if state.stopped is not None:
        return (
            f"the run in {folder} is finished after step {state.step}: {EXPLANATIONS[state.stopped]}. To continue training, "
            f"raise num_steps above {recipe.num_steps}"
        )
    message = f"continuing after step {state.step} from {folder}"
    if recipe.num_steps == before:
        return message
    message += f", with num_steps={recipe.num_steps} instead of {before}"
    if recipe.depends_on_num_steps:
        message += "; from here on the schedule, early_samples and kl_warmup_fraction follow the new num_steps"
    return message


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the header of a checkpoint.

    Raises:
        ValueError: The content is damaged.
        CheckpointError: The file cannot be read, or has another format.
    """
    if not path.is_file():
        raise ValueError("it is not a regular file")
    try:
        content = path.read_bytes()
    except OSError as error:
        # the content may be intact
        raise CheckpointError(
            f"{path} cannot be read: {error}. Try again, or delete it to continue from the previous checkpoint"
        ) from error
    try:
        tensors = load(content)
        # safetensors: eight bytes with the length of the JSON header, which contains the metadata
        length = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][ENTRY])
    except (SafetensorError, ValueError, TypeError, LookupError, RuntimeError) as error:
        raise ValueError(f"it is damaged, or not written by inducing.fit ({error})") from error
    if not isinstance(header, dict) or type(header.get("format")) is not int:
        raise CheckpointError(
            f"{path} has no header of inducing.fit. Delete it to continue from the previous checkpoint, or use another "
            "folder"
        )
    # before the checksum, which another format may compute differently
    if header["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has format {header['format']}, but this version of inducing reads {FORMAT}. Use the version that wrote "
            "it, or another folder"
        )
    if header.pop("sha256", None) != digest(header, tensors, with_shapes=False):
        raise ValueError("its checksum does not match")
    del header["format"]
    return tensors, header
