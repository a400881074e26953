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

# Grows with every change of the package after which runs end with different numbers:
# 2, gradients of `inducing.linalg.reparameterisation` in dense layers; 3, the same in convolutions, and the start of
# ScalePrior's posterior; 4, the gradients of hidden Gaussian processes (of revision 2 again); 5, the KL of factorised layers
# is its expectation over the variables of their prior
REVISION = 5

Settings = Mapping[str, Any]
Result = dict[str, Any]


def config_key(config: Settings) -> str:
    """A short hash of a configuration, the same on every machine.

    Fields that are None are left out: a new field with the default None changes no key, and stored runs are still found.
    """
    settings = {name: value for name, value in config.items() if value is not None}
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def finished_run(config: Settings, metrics: Settings, seconds: float) -> Result:
    """The result of a run that this process has just finished, with the version and the commit of this package."""
    return {
        "key": config_key(config),
        "config": dict(config),
        "metrics": dict(metrics),
        # the split is the seed of all random numbers of a run
        "seed": config.get("split"),
        "seconds": round(seconds, 2),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": version("inducing"),
        "commit": _commit(),
        "revision": REVISION,
    }


def revision_of(result: Result) -> int:
    """The revision of the package that made a run; 1 if the run is older than the first number."""
    return int(result.get("revision", 1))


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

    def add(self, result: Result) -> None:
        """Add a finished run, or replace it."""
        from filelock import FileLock

        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock")):
            results = self.results() | {result["key"]: result}
            write_atomically(self.path, "".join(f"{json.dumps(each)}\n" for each in results.values()).encode())


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
