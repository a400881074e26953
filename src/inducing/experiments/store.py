"""The results store: one JSON line for each finished run.

A line is keyed by the hash of the run's configuration, so a sweep that is started again repeats nothing that was finished.
The file is replaced as a whole under a lock: a reader, or a process killed at any moment, never sees half a line, and
several processes may add to it at once.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock

from inducing.files import write_atomically


def config_key(config: Mapping[str, Any]) -> str:
    """A short hash of a configuration, the same on every machine."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Store:
    """The finished runs of an experiment.

    Arguments:
        path: The file, ``DIR/NAME.jsonl``; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def results(self) -> dict[str, dict[str, Any]]:
        """All finished runs by their keys."""
        if not self.path.exists():
            return {}
        results = {}
        for number, line in enumerate(self.path.read_text().splitlines(), 1):
            try:
                result = json.loads(line)
                results[result["key"]] = result
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{self.path} line {number} is not a result of ours ({error}); repair or remove the line"
                ) from error
        return results

    def checkpoint(self, config: Mapping[str, Any]) -> Path:
        """The folder for the checkpoints of an unfinished run; whoever is at it holds a lock of the same name."""
        folder = self.path.parent / "checkpoints"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.path.stem}-{config_key(config)}"

    def add(
        self,
        config: Mapping[str, Any],
        metrics: Mapping[str, Any],
        seconds: float,
        made_by: Mapping[str, str | None] | None = None,
    ) -> None:
        """Add a finished run, made by the package here unless another `origin` is said; its predecessor is replaced."""
        key = config_key(config)
        result = {
            "key": key,
            "config": dict(config),
            "metrics": dict(metrics),
            # the split decides every random number of a run
            "seed": config.get("split"),
            "seconds": round(seconds, 2),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            **(made_by or origin()),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock")):
            results = self.results() | {key: result}
            write_atomically(self.path, "".join(f"{json.dumps(each)}\n" for each in results.values()).encode())


def origin() -> dict[str, str | None]:
    """The version and the commit of this package."""
    return {"version": version("inducing"), "commit": current_commit()}


def current_commit() -> str | None:
    """The commit of the source tree that this package runs from; None for an installed one. "+" marks local changes."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
