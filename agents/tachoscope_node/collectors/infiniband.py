"""RDMA adapters (InfiniBand, RoCE, EFA): traffic, errors, state and rate of each port, from /sys/class/infiniband.

https://docs.kernel.org/admin-guide/abi-stable.html#abi-sys-class-infiniband-device-ports-port-num-counters-symbol-error
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from typing import Final

from tachoscope_core.metrics.host import (
    INFINIBAND_BYTES,
    INFINIBAND_ERRORS,
    INFINIBAND_LINK_RATE,
    INFINIBAND_LINK_STATE,
    LINK_STATES,
)
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import HOST_INTERVAL_SECONDS, NoDataError, NotSupportedError
from tachoscope_node.common.kernel_files import MalformedError, read
from tachoscope_node.config.device_filter import DeviceFilter
from tachoscope_service.metrics.family import Family, Point

# The kernel divides the octets of these two by 4 ("lanes", whatever the width of the link), for RoCE as well. Adapters that
# have only hw_counters (EFA, Broadcom) count plain bytes there.
_DATA = (("receive", "counters/port_rcv_data", 4), ("transmit", "counters/port_xmit_data", 4))
_PLAIN_DATA = (("receive", "hw_counters/rx_bytes", 1), ("transmit", "hw_counters/tx_bytes", 1))

# Few on purpose: each read may be a question to the adapter's firmware. hw_counters are those that report a lossy fabric.
_ERRORS = (
    "counters/symbol_error",
    "counters/link_error_recovery",
    "counters/link_downed",
    "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors",
    "counters/port_rcv_errors",
    "counters/port_rcv_remote_physical_errors",
    "counters/port_rcv_constraint_errors",
    "counters/port_xmit_constraint_errors",
    "counters/port_xmit_discards",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/out_of_buffer",
)
_RATE = re.compile(rb"(\d+(?:\.\d+)?) Gb/sec\b")
_NOT_GIVEN = (errno.ENOENT, errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP)
"""What a read fails with where the adapter has no such counter, or is being taken away."""


@dataclass(frozen=True, slots=True)
class _Port:
    """A port, and the files that it has."""

    labels: tuple[str, str]
    path: str
    data: tuple[tuple[str, str, int], ...]
    errors: tuple[tuple[str, str], ...]


class InfinibandCollector:
    """Bytes, errors by kind, state and rate of each port of each RDMA adapter."""

    name = "infiniband"
    metrics: Final[tuple[Metric, ...]] = (INFINIBAND_BYTES, INFINIBAND_ERRORS, INFINIBAND_LINK_STATE, INFINIBAND_LINK_RATE)

    def __init__(
        self, sys: str = "/sys", devices: DeviceFilter | None = None, *, interval_seconds: float = HOST_INTERVAL_SECONDS
    ) -> None:
        self.interval_seconds = interval_seconds
        self._root = f"{sys}/class/infiniband"
        self._devices = devices or DeviceFilter()
        self._names: list[str] = []
        self._ports: list[_Port] = []

    def collect(self) -> list[Family]:
        self._find_ports()
        if not self._ports:
            raise NoDataError(f"no RDMA adapter in {self._root} passes the filter")
        size: list[Point] = []
        errors: list[Point] = []
        states: list[Point] = []
        rates: list[Point] = []
        for port in self._ports:
            for direction, path, unit in port.data:
                if (count := _number(path)) is not None:
                    size.append(((*port.labels, direction), count * unit))
            for kind, path in port.errors:
                if (count := _number(path)) is not None:
                    errors.append(((*port.labels, kind), count))
            if (state := _state(f"{port.path}/state")) is not None:
                states.extend(((*port.labels, name), float(name == state)) for name in LINK_STATES)
            if (rate := _rate(f"{port.path}/rate")) is not None:
                rates.append((port.labels, rate))
        return [
            Family(INFINIBAND_BYTES, size),
            Family(INFINIBAND_ERRORS, errors),
            Family(INFINIBAND_LINK_STATE, states),
            Family(INFINIBAND_LINK_RATE, rates),
        ]

    def _find_ports(self) -> None:
        """List the files again if adapters have changed."""
        try:
            names = sorted(os.listdir(self._root))
        except FileNotFoundError as error:
            raise NotSupportedError(f"no RDMA driver: {self._root} does not exist") from error
        if names != self._names:
            self._ports = [port for name in names if self._devices.keeps(name) for port in _ports(self._root, name)]
            self._names = names


def _ports(root: str, device: str) -> list[_Port]:
    """Return the ports of an adapter; empty if it was just removed."""
    try:
        numbers = sorted(os.listdir(f"{root}/{device}/ports"))
    except FileNotFoundError:
        return []
    found = []
    for number in numbers:
        path = f"{root}/{device}/ports/{number}"
        data = _DATA if os.path.exists(f"{path}/{_DATA[0][1]}") else _PLAIN_DATA
        found.append(
            _Port(
                (device, number),
                path,
                tuple((direction, f"{path}/{file}", unit) for direction, file, unit in data if os.path.exists(f"{path}/{file}")),
                tuple((os.path.basename(file), f"{path}/{file}") for file in _ERRORS if os.path.exists(f"{path}/{file}")),
            )
        )
    return found


def _content(path: str) -> bytes | None:
    """Return what the file says, or None where the adapter has nothing to say there."""
    try:
        content = read(path).strip()
    except OSError as error:
        if error.errno in _NOT_GIVEN:
            return None
        raise
    # Virtual functions have the files but no agent that counts: https://github.com/prometheus/node_exporter/issues/966
    return None if content.startswith(b"N/A") else content


def _number(path: str) -> int | None:
    content = _content(path)
    try:
        return None if content is None else int(content)
    except ValueError as error:
        raise MalformedError(path, 1, content or b"") from error


def _state(path: str) -> str | None:
    """Return the state's name from such as `4: ACTIVE`."""
    if (content := _content(path)) is None:
        return None
    try:
        return LINK_STATES[int(content.split(b":")[0])]
    except (IndexError, ValueError) as error:
        raise MalformedError(path, 1, content) from error


def _rate(path: str) -> float | None:
    """Return bytes a second from such as `200 Gb/sec (4X HDR)`."""
    if (content := _content(path)) is None:
        return None
    if (found := _RATE.match(content)) is None:
        raise MalformedError(path, 1, content)
    return float(found[1]) * 1e9 / 8
