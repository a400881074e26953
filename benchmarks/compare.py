"""Worker: one workload, both sides alternating in this process; see benchmarks/bench.py."""

from __future__ import annotations

import argparse
import json
import os
import warnings
from dataclasses import asdict

import torch

import inducing
from benchmarks.measure import alternate, large_product
from benchmarks.workloads import WORKLOADS
from inducing.memory import keeping_memory


def main() -> None:
    """Measure, and print the runs of ours, of the other side and of the large product."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--least", type=int, required=True, help="runs of each side, however long they take")
    parser.add_argument("--threads", type=int, required=True, help="what the environment has set")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", inducing.DataWarning)
    # Covariances of distant random rows underflow. Some processors take a hundred times as long for denormal numbers, in
    # whichever side happens to have more of them. Threads that start later inherit the setting.
    if not torch.set_flush_denormal(True):
        raise RuntimeError("this processor cannot flush denormal numbers to zero")
    workload = WORKLOADS[arguments.workload]
    sides = [*workload.build(), large_product(workload.dtype)]
    # as in `inducing.fit`; it serves both sides
    with keeping_memory():
        timings = alternate(sides, arguments.seconds, arguments.least)
    if torch.get_num_threads() != arguments.threads:
        raise RuntimeError(f"torch had {torch.get_num_threads()} threads instead of {arguments.threads}")
    result = dict(zip(("ours", "other", "product"), map(asdict, timings), strict=True))
    result["wait_policy"] = os.environ.get("OMP_WAIT_POLICY", "not set")
    print(json.dumps(result))
