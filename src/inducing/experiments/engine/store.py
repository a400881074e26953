"""The results store: one JSON line for each finished run.

A line has the hash of the run's configuration as its key, so a sweep that is started again repeats no finished run. The
file is replaced as a whole under a lock: a reader, or a process killed at any moment, never sees half a line, and several
processes may add to it at once.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from inducing.files import write_atomically

Settings = Mapping[str, Any]
Result = dict[str, Any]
Origin = dict[str, str | None]


def config_key(config: Settings) -> str:
    """A short hash of a configuration, the same on every machine."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Store(NamedTuple):
    """The finished runs of an experiment.

    Arguments:
        path: The file, ``DIR/NAME.jsonl``. It may not exist yet.
    """

    path: Path

    def results(self) -> dict[str, Result]:
        """All finished runs by key."""
        if not self.path.exists():
            return {}
        results = {}
        for number, line in enumerate(self.path.read_text().splitlines(), 1):
            try:
                result = json.loads(line)
                results[result["key"]] = result
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{self.path} line {number} is not a run ({error}); repair or remove it") from error
        return results

    def checkpoint(self, config: Settings) -> Path:
        """The checkpoint folder of an unfinished run. The process that executes the run holds a lock of the same name."""
        folder = self.path.parent / "checkpoints"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.path.stem}-{config_key(config)}"

    def add(self, config: Settings, metrics: Settings, seconds: float, made_by: Origin | None = None) -> None:
        """Add a finished run, or replace it. `made_by` is the `origin` of a run on another machine."""
        from filelock import FileLock

        result = {
            "key": config_key(config),
            "config": dict(config),
            "metrics": dict(metrics),
            # the split is the seed of all random numbers of a run
            "seed": config.get("split"),
            "seconds": round(seconds, 2),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            **(made_by or origin()),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock")):
            results = self.results() | {result["key"]: result}
            write_atomically(self.path, "".join(f"{json.dumps(each)}\n" for each in results.values()).encode())


def origin() -> Origin:
    """The version and the commit of this package."""
    return {"version": version("inducing"), "commit": _commit()}


def _commit() -> str | None:
    """The commit of the source tree of this package, with "+" for local changes; None for an installed package."""
    root = Path(__file__).resolve().parents[4]
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
