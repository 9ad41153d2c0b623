"""The table of dcgm_fields.yaml: which field of DCGM is which of our metrics, in what unit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from tachoscope_core import located_yaml
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.dcgm import DCGM_UNITS, DcgmUnit
from tachoscope_core.metrics.gpu import GPU_METRICS, GPU_UP, THROTTLE_REASONS
from tachoscope_service.metrics.family import Labels

_TABLE = Path(__file__).with_name("dcgm_fields.yaml")
_METRICS = {metric.name: metric for metric in GPU_METRICS}
_OF_A_GPU = GPU_UP.labels
_MOST_RATIO = 1.01
"""Shares of cycles come out a little above 1 at times."""
_UNITS: Mapping[DcgmUnit, tuple[float, float]] = {
    "MHz": (1e6, 1.0),
    "celsius": (1.0, 1.0),
    "W": (1.0, 1.0),
    "mJ": (1.0, 1e3),
    "percent": (1.0, 100.0),
    "ratio": (1.0, 1.0),
    "MiB": (1024.0**2, 1.0),
    "bytes": (1.0, 1.0),
    "1000 KiB": (1024e3, 1.0),
    "ns": (1.0, 1e9),
    "count": (1.0, 1.0),
    "number": (1.0, 1.0),
    "bits": (1.0, 1.0),
}
"""DCGM's units: ours are theirs times the first over the second, which rounds once."""


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row; dcgm_fields.yaml explains it."""

    field: str
    metric: str
    of: Literal["gpu", "instance"]
    labels: Labels = ()
    also: tuple[str, ...] = ()
    sum: tuple[Labels, ...] = ()
    bits: bool = False
    zero_is_blank: bool = False

    @property
    def series(self) -> tuple[Labels, ...]:
        """Labels of the series of ours that it is, or is made of."""
        if self.bits:
            return tuple((reason,) for reason in THROTTLE_REASONS)
        return self.sum or (self.labels,)

    def from_dcgm(self, number: float) -> float | None:
        """Return a number of DCGM's in our unit, None for one that cannot be."""
        unit = DCGM_UNITS[self.field]
        times, over = _UNITS[unit]
        value = number * times / over
        if unit in ("percent", "ratio"):
            return min(value, 1.0) if 0.0 <= value <= _MOST_RATIO else None
        if value < 0.0 and unit != "celsius":
            return None
        return None if value == 0.0 and self.zero_is_blank else value

    def to_dcgm(self, value: float) -> float:
        """Return a value of ours in DCGM's unit."""
        times, over = _UNITS[DCGM_UNITS[self.field]]
        return value * over / times


def _load() -> tuple[Field, ...]:
    try:
        fields = msgspec.convert(located_yaml.read_plain(_TABLE).data, tuple[Field, ...])
    except msgspec.ValidationError as error:
        raise TachoscopeError(f"{_TABLE}: {error}") from error
    for field in fields:
        metric = _METRICS.get(field.metric)
        wanted = len(metric.labels) - len(_OF_A_GPU) if metric else -1
        if {len(labels) for labels in field.series} != {wanted} or field.field not in DCGM_UNITS:
            raise TachoscopeError(f"{_TABLE}: {field.field}: unknown field, metric or labels")
    return fields


FIELDS = _load()
"""In the order of the file: of those for the same metric and labels, an earlier one is preferred."""
