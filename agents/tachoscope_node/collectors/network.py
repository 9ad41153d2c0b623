"""Traffic and troubles of network interfaces and of TCP, from /proc/net."""

from __future__ import annotations

import os
from typing import Final

from tachoscope_core.metrics.host import NETWORK_BYTES, NETWORK_DROPS, NETWORK_ERRORS, TCP_RETRANSMITTED, TCP_SENT
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import HOST_INTERVAL_SECONDS
from tachoscope_node.common.kernel_files import MalformedError, read, rows
from tachoscope_node.config.device_filter import INTERFACES, DeviceFilter
from tachoscope_service.metrics.family import Family, Point

_HEADER_LINES = 2
_TCP_METRICS = ((TCP_SENT, b"OutSegs"), (TCP_RETRANSMITTED, b"RetransSegs"))


class NetworkCollector:
    """Bytes, errors and drops of each interface; segments that TCP sent and sent again."""

    name = "network"
    metrics: Final[tuple[Metric, ...]] = (NETWORK_BYTES, NETWORK_ERRORS, NETWORK_DROPS, TCP_SENT, TCP_RETRANSMITTED)

    def __init__(
        self, proc: str = "/proc", devices: DeviceFilter = INTERFACES, *, interval_seconds: float = HOST_INTERVAL_SECONDS
    ) -> None:
        self.interval_seconds = interval_seconds
        self._proc = proc
        self._devices = devices

    def collect(self) -> list[Family]:
        # <proc>/net is the network namespace of the reader, so of the agent's pod, even below a mount of the host's /proc;
        # process 1 there is the host's (https://man7.org/linux/man-pages/man5/proc_net.5.html). hidepid may forbid it.
        net = f"{self._proc}/1/net"
        if not os.access(f"{net}/dev", os.R_OK):
            net = f"{self._proc}/net"
        size: list[Point] = []
        errors: list[Point] = []
        drops: list[Point] = []
        for device, received, transmitted in rows(f"{net}/dev", self._parse, skip=_HEADER_LINES):
            for direction, numbers in (("receive", received), ("transmit", transmitted)):
                labels = (device, direction)
                size.append((labels, numbers[0]))
                errors.append((labels, numbers[2]))
                drops.append((labels, numbers[3]))
        interfaces = [Family(NETWORK_BYTES, size), Family(NETWORK_ERRORS, errors), Family(NETWORK_DROPS, drops)]
        return interfaces + _tcp(f"{net}/snmp")

    def _parse(self, line: bytes) -> tuple[str, list[int], list[int]] | None:
        name, _, counters = line.rpartition(b":")  # old kernels leave no space after the colon; an alias has one of its own
        device = name.strip().decode()
        if not self._devices.keeps(device):
            return None
        numbers = [int(field) for field in counters.split()]
        if not device or len(numbers) < 16:
            raise ValueError(line)
        return device, numbers[:8], numbers[8:]


def _tcp(path: str) -> list[Family]:
    """Read the two lines of TCP: names, then numbers."""
    content = read(path)
    start = content.find(b"Tcp: ") if content.startswith(b"Tcp: ") else content.find(b"\nTcp: ") + 1
    names, numbers, *_ = [*content[start:].split(b"\n", 2), b"", b""]
    try:
        by_name = dict(zip(names.split(), numbers.split(), strict=True))
        return [Family(metric, [((), int(by_name[name]))]) for metric, name in _TCP_METRICS]
    except (KeyError, ValueError) as error:
        raise MalformedError(path, content.count(b"\n", 0, start) + 2, numbers) from error
