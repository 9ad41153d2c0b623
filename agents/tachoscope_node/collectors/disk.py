"""What disks did, from /proc/diskstats."""

from __future__ import annotations

from typing import Final

from tachoscope_core.metrics.host import DISK_BYTES, DISK_IO_SECONDS, DISK_OPERATION_SECONDS, DISK_OPERATIONS
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import HOST_INTERVAL_SECONDS, NoDataError
from tachoscope_node.common.kernel_files import rows
from tachoscope_node.config.device_filter import DISKS, DeviceFilter
from tachoscope_service.metrics.family import Family, Point

# A sector is 512 bytes here, whatever the disk's own are. https://docs.kernel.org/admin-guide/iostats.html
_SECTOR_BYTES = 512


class DiskCollector:
    """Bytes, operations and seconds of each disk."""

    name = "disk"
    metrics: Final[tuple[Metric, ...]] = (DISK_BYTES, DISK_OPERATIONS, DISK_OPERATION_SECONDS, DISK_IO_SECONDS)

    def __init__(
        self, proc: str = "/proc", devices: DeviceFilter = DISKS, *, interval_seconds: float = HOST_INTERVAL_SECONDS
    ) -> None:
        self.interval_seconds = interval_seconds
        self._path = f"{proc}/diskstats"
        self._devices = devices

    def collect(self) -> list[Family]:
        size: list[Point] = []
        operations: list[Point] = []
        seconds: list[Point] = []
        busy: list[Point] = []
        for device, (reads, _, read, read_ms, writes, _, written, write_ms, _, busy_ms) in rows(self._path, self._parse):
            in_, out = (device, "read"), (device, "write")
            operations += (in_, reads), (out, writes)
            size += (in_, read * _SECTOR_BYTES), (out, written * _SECTOR_BYTES)
            seconds += (in_, read_ms / 1000), (out, write_ms / 1000)
            busy.append(((device,), busy_ms / 1000))
        if not busy:
            raise NoDataError(f"no disk of {self._path} passes the filter")
        return [
            Family(DISK_BYTES, size),
            Family(DISK_OPERATIONS, operations),
            Family(DISK_OPERATION_SECONDS, seconds),
            Family(DISK_IO_SECONDS, busy),
        ]

    def _parse(self, line: bytes) -> tuple[str, list[int]] | None:
        fields = line.split()
        device = fields[2].decode()
        if not self._devices.keeps(device):
            return None
        numbers = [int(field) for field in fields[3:13]]
        if len(numbers) < 10:
            raise ValueError(line)
        return device, numbers
