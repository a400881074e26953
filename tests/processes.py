"""Processes that tests may kill. A server imports the package once, and each process is a fork of it, without start-up time."""

import multiprocessing
import os

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["inducing.cli"])


def start(target, *arguments):
    """Call an importable function in a process of its own."""
    process = _context.Process(target=_run, args=(target, arguments))
    process.start()
    return process


def wait(process, seconds=600):
    """Wait for a process and return its exit code."""
    process.join(seconds)
    return process.exitcode


def _run(target, arguments):
    # what it prints is not for whoever reads the tests' output
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
    target(*arguments)
