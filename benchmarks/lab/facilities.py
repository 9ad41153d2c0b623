"""What this machine lets the lab do: each answer is empty, or the reason why a fault that needs it is skipped."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from benchmarks.lab import cgroups, network


def _network_shaping() -> str:
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (iproute2)"
    try:
        with network.loopback() as [descriptor], network._elsewhere():
            network.processes.enter_namespace(descriptor)
            network.limit("lo", 1e8)
    except OSError as error:
        return f"no network namespace with a token bucket: {error}"
    return ""


def _network_cards() -> str:
    if reason := _network_shaping():
        return reason
    try:
        with network.cards(2):
            return ""
    except OSError as error:
        return f"no veth and bridge: {error}"


def _cores() -> str:
    cores = len(os.sched_getaffinity(0))
    return "" if cores >= 2 else f"two ranks need two cores, there is {cores}"


def _disk_throttle() -> str:
    if reason := cgroups.available("blkio", "blkio.throttle.read_bps_device"):
        return reason
    with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
        try:
            os.close(os.open(file.name, os.O_RDONLY | os.O_DIRECT))
        except OSError:
            return "the file system knows no O_DIRECT, so that reading would be from memory"
        device = os.stat(file.name).st_dev
        if not os.path.exists(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"):
            return "the file system lies on no block device of its own"
    return ""


CHECKS: dict[str, Callable[[], str]] = {
    "two_cores": _cores,
    "network_shaping": _network_shaping,
    "network_cards": _network_cards,
    "cpu_quota": lambda: cgroups.available("cpu", "cpu.cfs_quota_us"),
    "memory_limit": lambda: cgroups.available("memory", "memory.limit_in_bytes"),
    "disk_throttle": _disk_throttle,
}


@cache
def missing(name: str) -> str:
    """Return why a facility is missing here, empty if it is there."""
    return CHECKS[name]()


def why_not(needs: tuple[str, ...]) -> str:
    """Return the reasons why something with these needs cannot be done here, empty if it can."""
    return "; ".join(reason for need in needs if (reason := missing(need)))
