"""Runs commands of tachoscope on a store, and says what they took."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds that a command took, on the clock and of processors, and the most memory that it had."""

    wall_seconds: float
    cpu_seconds: float
    resident_bytes: int


def run(*command: str) -> Measured:
    """Run a command of tachoscope in a process of its own."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "tachoscope_cli.main", *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, command
    return Measured(time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10)


def stored(root: Path) -> tuple[int, int]:
    """Return how many objects a store has, and their bytes."""
    sizes = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)
