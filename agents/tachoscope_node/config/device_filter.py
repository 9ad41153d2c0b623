"""Which devices a collector looks at: one way for all that have devices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tachoscope_core.errors import TachoscopeError


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """Regular expressions that a device's whole name is compared with: `include` or `exclude`, never both.

    Attributes:
        include: only devices that match. exclude: all but those that match. Empty: not given. With neither, all devices.
    """

    include: str = ""
    exclude: str = ""

    def __post_init__(self) -> None:
        if self.include and self.exclude:
            raise TachoscopeError(
                f"a device filter has both include {self.include!r} and exclude {self.exclude!r}", fix="give one of them"
            )
        for name, pattern in (("include", self.include), ("exclude", self.exclude)):
            try:
                re.compile(pattern)
            except re.error as error:
                raise TachoscopeError(
                    f"{name} {pattern!r} of a device filter is not a regular expression: {error}", fix="fix the expression"
                ) from error

    def keeps(self, device: str) -> bool:
        if self.include:
            return re.fullmatch(self.include, device) is not None
        return not self.exclude or re.fullmatch(self.exclude, device) is None


DISKS = DeviceFilter(exclude=r"(loop|z?ram|fd|sr|dm-)\d+|([hsv]|xv)d[a-z]+\d+|(nvme\d+n|mmcblk)\d+p\d+")
"""Without what is not a disk, and without mappings and partitions, whose work is counted at their disk already."""
INTERFACES = DeviceFilter(exclude=r"lo|(veth|cali|docker|br-).*")
"""Without what only carries a host's own traffic: loopback, the pods' ends, bridges."""
DEFAULT_FILTERS: Mapping[str, DeviceFilter] = {"disk": DISKS, "network": INTERFACES, "infiniband": DeviceFilter()}
"""The collectors that have devices, and which of those they look at."""
