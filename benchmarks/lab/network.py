"""Networks of a run's own: a loopback, or one network card a rank on a bridge, that `tc` makes slow.

They vanish with the processes: nothing is named in the machine's own namespace, each network namespace is held by an open
descriptor and by the ranks in it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

from benchmarks.lab import processes

BURST_BYTES = 262_144
"""Packets on the loopback are up to 64 KiB; a bucket of tokens smaller than a few of them stops traffic instead of slowing it."""
_OWN = "/proc/self/ns/net"


def command(*words: str) -> None:
    """Run `ip` or `tc` in the calling thread's network namespace.

    Raises:
        OSError: it failed; with what it said.
    """
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")


def limit(device: str, bytes_per_second: float) -> None:
    """Send no faster than that from a device, by a token bucket."""
    rate = f"{max(8_000, round(bytes_per_second * 8))}bit"
    command("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", str(BURST_BYTES), "latency", "5s")


def limit_to(device: str, address: str, bytes_per_second: float) -> None:
    """Send no faster than that from a device to one address; to the others as before."""
    rate = f"{max(8_000, round(bytes_per_second * 8))}bit"
    command("tc", "qdisc", "replace", "dev", device, "root", "handle", "1:", "htb", "default", "10")
    command("tc", "class", "replace", "dev", device, "parent", "1:", "classid", "1:10", "htb", "rate", "100gbit", "burst", "1mb")
    limits = ("rate", rate, "burst", str(BURST_BYTES), "cburst", str(BURST_BYTES))
    command("tc", "class", "replace", "dev", device, "parent", "1:", "classid", "1:20", "htb", *limits)
    match = ("match", "ip", "dst", f"{address}/32", "flowid", "1:20")
    command("tc", "filter", "replace", "dev", device, "protocol", "ip", "parent", "1:", "prio", "1", "u32", *match)


def unlimit(device: str) -> None:
    """Send as fast as it goes again."""
    with contextlib.suppress(OSError):
        command("tc", "qdisc", "del", "dev", device, "root")


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """Come back to the present namespace at the end of the block."""
    home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        processes.enter_namespace(home)
        os.close(home)


@contextlib.contextmanager
def loopback() -> Iterator[list[int]]:
    """Give the descriptor of a network namespace with a loopback of its own."""
    with _elsewhere():
        processes.unshare(processes.NEW_NETWORK)
        command("ip", "link", "set", "lo", "up")
        descriptor = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield [descriptor]
    finally:
        os.close(descriptor)


def address_of(rank: int) -> str:
    """Return the address of a rank's card."""
    return f"10.77.0.{rank + 1}"


@contextlib.contextmanager
def cards(ranks: int) -> Iterator[list[int]]:
    """Give the descriptors of one network namespace a rank, with its card `eth0`, and last of that of the bridge between them.

    On the bridge the other end of a rank's card is called `port<rank>`.
    """
    descriptors: list[int] = []
    try:
        with _elsewhere():
            for _ in range(ranks):
                processes.unshare(processes.NEW_NETWORK)
                command("ip", "link", "set", "lo", "up")
                descriptors.append(os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC))
            processes.unshare(processes.NEW_NETWORK)
            descriptors.append(os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC))
            command("ip", "link", "add", "bridge", "type", "bridge")
            command("ip", "link", "set", "bridge", "up")
            for rank, descriptor in enumerate(descriptors[:-1]):
                there = f"/proc/{os.getpid()}/fd/{descriptor}"
                port = f"port{rank}"
                command("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", there)
                command("ip", "link", "set", port, "master", "bridge", "up")
            for rank, descriptor in enumerate(descriptors[:-1]):
                processes.enter_namespace(descriptor)
                command("ip", "addr", "add", f"{address_of(rank)}/24", "dev", "eth0")
                command("ip", "link", "set", "eth0", "up")
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
