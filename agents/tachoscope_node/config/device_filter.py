"""Which devices a collector looks at: one way for all that have devices."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tachoscope_core.errors import TachoscopeError


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """Regular expressions that a device's whole name is held against: `include` or `exclude`, never both.

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
                    f"{name} {pattern!r} of a device filter is no regular expression: {error}", fix="mend the expression"
                ) from error

    def keeps(self, device: str) -> bool:
        """Return whether to look at the device."""
        if self.include:
            return re.fullmatch(self.include, device) is not None
        return not self.exclude or re.fullmatch(self.exclude, device) is None
