"""Runs with another version of the package, from the source folder of a worktree, so that both are measured alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.processes import ROOT, threads, without_thread_settings

THIS_VERSION = ROOT / "src"


def run_version(source: Path, module: str, *arguments: str) -> dict[str, Any]:
    """Call the function `worker` of a module of this package in a fresh process with one thread.

    Arguments:
        source: The folder that contains the version of `inducing` to use.
        module: Name of the module. Its function prints one line of JSON last.
        arguments: Arguments of the function.
    """
    if not (source / "inducing" / "__init__.py").is_file():
        raise FileNotFoundError(f"{source} has no package inducing; pass the folder src of a worktree")
    start = f"import sys; from benchmarks.{module} import worker; worker(*sys.argv[1:])"
    path = os.pathsep.join([str(source.resolve()), str(ROOT)])
    environment = without_thread_settings(dict(os.environ)) | threads(1) | {"PYTHONPATH": path}
    command = [sys.executable, "-c", start, *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
