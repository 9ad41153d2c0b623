"""Two nodes on one machine: network namespaces with a cable between them, each with a host name of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

ADDRESSES = ("10.99.7.1", "10.99.7.2")
CABLE = "veth1"
_NAMED = 'hostname "$0" && exec "$@"'


def _can_be_made() -> bool:
    if os.geteuid() != 0 or any(shutil.which(tool) is None for tool in ("ip", "unshare", "hostname")):
        return False
    made = subprocess.run(["ip", "netns", "add", f"tachoscope-try-{os.getpid()}"], capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "del", f"tachoscope-try-{os.getpid()}"], capture_output=True, check=False)
    return made


needs_namespaces = pytest.mark.skipif(not _can_be_made(), reason="needs the right to make network namespaces")


def on_node(name: str, *command: str) -> list[str]:
    """Return the command that runs a command in a namespace, on a host of that name."""
    return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", _NAMED, name, *command]


@contextlib.contextmanager
def two_namespaces() -> Iterator[tuple[str, str]]:
    """Yield two network namespaces with a cable between them, whose ends have `ADDRESSES`."""
    names = (f"tk-{os.getpid()}-1", f"tk-{os.getpid()}-2")

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", names[0], "link", "add", CABLE, "type", "veth", "peer", "name", CABLE, "netns", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", CABLE)
            ip("-n", name, "link", "set", CABLE, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
