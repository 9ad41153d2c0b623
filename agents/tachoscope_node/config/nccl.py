"""The part of the agent's configuration that is about NCCL's own telemetry."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path

import msgspec

RAS_PORT = 28028


class Nccl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is collected of NCCL. Empty `inspector` and `ras` ask nothing of anybody.

    Attributes:
        inspector: folders that NCCL's Inspector writes to (its NCCL_INSPECTOR_DUMP_DIR), or whose folders it writes to.
        bytes_per_second: most that is read of all its files together.
        rotate_bytes: space that a file may take; what was read is given back once it takes more. 0: nothing is given back.
        record_one_in: operations of which one becomes a record in the store; 0: none does.
        ras: where NCCL's RAS answers, such as 127.0.0.1:28028; empty: it is not asked.
        ras_interval_seconds: between two questions. hung_polls: answers in which nothing moves before a communicator hangs.
    """

    inspector: list[str] = []
    bytes_per_second: int = 512 << 10
    rotate_bytes: int = 64 << 20
    record_one_in: int = 256
    ras: str = ""
    ras_interval_seconds: float = 15.0
    hung_polls: int = 8


RANGES: Mapping[str, tuple[float, float]] = {
    "bytes_per_second": (1 << 14, 1 << 30),
    "rotate_bytes": (0, 1 << 40),
    "record_one_in": (0, 1 << 30),
    "ras_interval_seconds": (1, 3600),
    "hung_polls": (2, 1000),
}
"""By key: the least and the most that a number may be."""


def faults(settings: Nccl) -> list[str]:
    """Return every fault of places, each with its key, its value and the way out."""
    found = [
        f"inspector: {folder!r} is a relative path: write it from / on"
        for folder in settings.inspector
        if not Path(folder).is_absolute()
    ]
    if settings.ras and address(settings.ras) is None:
        found.append(f"ras: {settings.ras!r} is not an address of this machine with a port: write 127.0.0.1:{RAS_PORT}")
    return found


def address(text: str) -> tuple[str, int] | None:
    """Return host and port of such as `127.0.0.1:28028` or `[::1]:28028`; None where it is none, or no loopback address.

    Names are not looked up, which may take long; `localhost` is 127.0.0.1.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    host = "127.0.0.1" if host == "localhost" else host
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        return None
    if not local or not port.isdigit() or not 0 < int(port) < 1 << 16:
        return None
    return host, int(port)
