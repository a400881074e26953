"""Processes that tests start and may kill.

A server imports the package once, and each process is a fork of it: it starts in milliseconds instead of the four seconds
that it takes to import torch, its optimisers and the package.
"""

import atexit
import multiprocessing
import os
import runpy
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import torch

_context = multiprocessing.get_context("forkserver")
# torch imports torch._dynamo in the first step of an optimiser
_context.set_forkserver_preload(
    [
        "inducing.cli",
        "inducing.tables.fitting",
        "torch._dynamo",
        "torch.distributed.nn",
        "matplotlib.backends.backend_agg",
    ]
)


class Finished(NamedTuple):
    """What a process left behind."""

    returncode: int
    stdout: str
    stderr: str


def start(target, *arguments, output=os.devnull, errors=None, variables=()):
    """Call an importable function in a process of its own, which has this folder and these environment variables."""
    settings = os.getcwd(), {**os.environ, **dict(variables)}, output, errors
    process = _context.Process(target=_run, args=(settings, target, arguments))
    process.start()
    return process


def wait(process, seconds=600):
    """Wait for a process and return its exit code."""
    process.join(seconds)
    return process.exitcode


def run_all(calls, seconds=300):
    """Call functions in processes at the same time: for each its environment variables, the function and its arguments."""
    with tempfile.TemporaryDirectory() as name:
        files = [(Path(name, f"{number}.out"), Path(name, f"{number}.err")) for number in range(len(calls))]
        started = [
            start(*call, output=output, errors=errors, variables=variables)
            for (variables, *call), (output, errors) in zip(calls, files, strict=True)
        ]
        try:
            codes = [wait(process, seconds) for process in started]
        finally:
            for process in started:
                process.kill()
        return [
            Finished(code, output.read_text(), errors.read_text())
            for code, (output, errors) in zip(codes, files, strict=True)
        ]


def run(target, *arguments):
    """Call an importable function in a process of its own, and return what it left behind."""
    (finished,) = run_all([({}, target, *arguments)])
    return finished


def command(*arguments):
    """Run the command `inducing` in this process, as its entry point does."""
    from inducing.__main__ import main

    sys.argv = ["inducing", *map(str, arguments)]
    main()


def script(path, *arguments):
    """Run a file in this process, as Python does."""
    sys.argv = [str(path), *map(str, arguments)]
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(str(path), run_name="__main__")


def _run(settings, target, arguments):
    folder, variables, output, errors = settings
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    torch.set_num_threads(1)
    for descriptor, path in ((1, output), (2, errors)):
        if path is not None:
            with open(path, "w") as file:
                os.dup2(file.fileno(), descriptor)
    try:
        target(*arguments)
    finally:
        # what Python does at its end, and multiprocessing too late or not at all: idle workers of joblib are ended first
        threading._shutdown()
        atexit._run_exitfuncs()
