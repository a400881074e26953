"""The machine that a benchmark runs on: its description, and how many of its cores other processes use.

Linux counts the CPU time of the whole machine in /proc/stat; less our own, it is that of all other processes, whether we
sleep or measure. It includes the time that a hypervisor gave to other machines. Elsewhere there is only the load average,
which is compared with what we run ourselves.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

STATISTICS = Path("/proc/stat")
# cores that other processes may use while we measure
TOLERATED_CORES = 0.1
# seconds without work of our own, before and after a benchmark
IDLE_SECONDS = 1.0


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, Any]:
    """What a result depends on."""
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "cores": available_cores(),
        "system": platform.system(),
        "torch": torch.__version__,
    }


def heading(machine: dict[str, Any]) -> str:
    """The description in a line."""
    return (
        f"{machine['processor']} ({machine['architecture']}, {machine['instruction_set']}), {machine['cores']} cores, "
        f"{machine['system']}, torch {machine['torch']}"
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    if platform.system() == "Darwin":
        return subprocess.check_output(["sysctl", "-n", "machdep.cpu.brand_string"], text=True).strip()
    return platform.processor() or "unknown processor"


@dataclass(frozen=True)
class CPUTime:
    """CPU seconds until now: of the whole machine, and of this process with the children that have ended.

    Arguments:
        wall: When it was read.
        machine: None where the system does not count it.
        own: Ours.
    """

    wall: float
    machine: float | None
    own: float

    @classmethod
    def read(cls) -> CPUTime:
        """Read the clocks."""
        times = os.times()
        own = times.user + times.system + times.children_user + times.children_system
        machine = busy_seconds(STATISTICS.read_text()) if STATISTICS.exists() else None
        return cls(time.perf_counter(), machine, own)

    def other_cores(self, end: CPUTime) -> float | None:
        """Cores that other processes used on average until ``end``; None where the system does not count it."""
        if self.machine is None or end.machine is None:
            return None
        return max(0.0, (end.machine - self.machine) - (end.own - self.own)) / (end.wall - self.wall)


def busy_seconds(statistics: str) -> float:
    """CPU seconds of all cores that were not idle, from the text of /proc/stat."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, statistics.split(maxsplit=9)[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def other_cores_while_idle(seconds: float, own_cores: float = 0.0) -> float:
    """Cores that other processes use while this one sleeps.

    Arguments:
        seconds: How long to sleep.
        own_cores: What we used in the last minute, which a load average includes.
    """
    start = CPUTime.read()
    time.sleep(seconds)
    cores = start.other_cores(CPUTime.read())
    return max(0.0, os.getloadavg()[0] - own_cores) if cores is None else cores


def describe_other_work(when: str, cores: float | None) -> list[str]:
    """Why a measurement beside other processes does not count, if it does not."""
    if cores is None or cores <= TOLERATED_CORES:
        return []
    return [f"other processes used {cores:.2f} cores {when} (tolerated: {TOLERATED_CORES})"]
