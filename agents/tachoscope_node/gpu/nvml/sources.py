"""The table of sources.yaml: from which call, field or GPM metric each value of a GPU comes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tachoscope_core import located_yaml
from tachoscope_core.metrics.gpu import GPU_METRICS
from tachoscope_node.gpu.nvml.conversions import UNITS
from tachoscope_service.metrics.family import Labels

ALL_LINKS = 0xFFFFFFFF
"""The scope of a field that is summed over all links."""
_TABLE = Path(__file__).with_name("sources.yaml")
_LABELS = {metric.name: len(metric.labels) - 3 for metric in GPU_METRICS}


@dataclass(frozen=True, slots=True, eq=False)
class ValueSource:
    """Where a value comes from: one of `field`, `gpm` and `call` is set. See sources.yaml for the attributes."""

    metric: str
    labels: Labels
    unit: str
    since: str
    field: int = 0
    scope: int = 0
    gpm: int = 0
    call: str = ""
    arguments: tuple[int, ...] = ()
    take: str = ""
    item: int | None = None
    bit: int = 0
    slow: bool = False
    whole: bool = False

    @property
    def key(self) -> tuple[str, Labels]:
        """What it gives: sources of the same key stand in for each other."""
        return self.metric, self.labels


def first_of_each(sources: Iterable[ValueSource]) -> tuple[ValueSource, ...]:
    """Return of the sources that give the same value only the first."""
    chosen: dict[tuple[str, Labels], ValueSource] = {}
    for source in sources:
        chosen.setdefault(source.key, source)
    return tuple(chosen.values())


def _load() -> tuple[ValueSource, ...]:
    return tuple(source for row in located_yaml.read_plain(_TABLE).data for source in _sources(row))


def _sources(row: Mapping[str, Any]) -> list[ValueSource]:
    """Return the sources of a row, one for each name that its function has had."""
    labels = tuple(row.get("labels", ()))
    if _LABELS.get(row["metric"]) != len(labels) or row["unit"] not in UNITS:
        raise ValueError(f"{_TABLE}: {row}: unknown metric, labels or unit")
    known = {
        **row,
        "labels": labels,
        "scope": ALL_LINKS if row.get("scope") == "all" else 0,
        "arguments": tuple(row.get("arguments", ())),
    }
    calls = row.get("call", "")
    return [ValueSource(**{**known, "call": call}) for call in (calls if isinstance(calls, list) else [calls])]


SOURCES = _load()
FIELDS_AND_CALLS = tuple(source for source in SOURCES if not source.gpm)
GPM = tuple(source for source in SOURCES if source.gpm)
