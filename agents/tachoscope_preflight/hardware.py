"""What a host is made of, in words that are equal on hosts that may be compared."""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from pathlib import Path

_MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


@cache
def cpu() -> str:
    """Return model and number of the cores that this process may use; a quota changes neither."""
    return f"{_model()}, {len(os.sched_getaffinity(0))} cores"


def _model() -> str:
    try:
        found = _MODEL.search(Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()


def file_system(folder: str) -> str:
    """Return type and mount point of the file system of a folder; the folder alone where the kernel does not tell."""
    real = os.path.realpath(folder)
    best = ("", "")
    try:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            place, kind = before.split()[4], after.split()[0]
            inside = real == place or real.startswith(f"{place.rstrip('/')}/")
            if inside and len(place) >= len(best[0]):
                best = (place, kind)
    except (OSError, IndexError):
        return real
    return f"{best[1]} at {best[0]}"


def link_bytes_per_second(interface: str) -> float | None:
    """Return what a network interface has negotiated; None: it does not say, as a virtual one."""
    try:
        megabits = int(Path(f"/sys/class/net/{interface}/speed").read_text())
    except (OSError, ValueError):
        return None
    return megabits * 125_000.0 if megabits > 0 else None


def link_fault(interface: str) -> str:
    """Return why a network interface cannot carry anything, empty if it can."""
    try:
        state = Path(f"/sys/class/net/{interface}/operstate").read_text().strip()
    except OSError:
        return "this network interface does not exist"
    return "it is down" if state in {"down", "lowerlayerdown", "notpresent"} else ""
