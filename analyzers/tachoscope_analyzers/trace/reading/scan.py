"""A chunk of events through the native scanner (`_scan.c`): rows of numbers, without an object for each event.

The scanner takes chunks that are plain throughout, and leaves all others to decode_events.py: values of other types than expected,
keys that come twice, halves of surrogate pairs, begins and ends, everything broken. So errors and repairs have one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.reading.decode_events import decode_list
from tachoscope_analyzers.trace.reading.event_kinds import BY_CATEGORY, ON_DEVICE, SHAPED, Kind
from tachoscope_analyzers.trace.reading.json_brackets import MODULE
from tachoscope_core.native import native

Array = npt.NDArray[Any]

TEXT_COLUMNS = (
    *("name", "category", "track", "grid", "block", "shapes", "types", "concrete"),
    *("collective", "group", "group_description", "group_ranks", "dtype", "stack"),
)
"""In the order of `enum column` in `_scan_events.h`, which also is the one in which columns.py gives codes."""

_CODE, _WHOLE, _FRACTION = "i4", "i8", "f8"
_FIELDS = {
    "events": (
        *(("digits", _WHOLE), ("duration", _FRACTION), ("category", _CODE), ("name", _CODE), ("track", _CODE), ("decimals", _CODE)),
        *(("correlation", _WHOLE), ("external", _WHOLE)),
    ),
    "device": (
        *(("row", _WHOLE), ("stream", _WHOLE), ("device", _WHOLE), ("bytes", _WHOLE)),
        *(("occupancy_percent", _FRACTION), ("blocks_per_sm", _FRACTION), ("grid", _CODE), ("block", _CODE)),
        *(("graph_node", _WHOLE), ("wait_stream", _WHOLE), ("wait_correlation", _WHOLE)),
    ),
    "operators": (
        *(("row", _WHOLE), ("shapes", _CODE), ("types", _CODE), ("concrete", _CODE)),
        *(("sequence", _WHOLE), ("forward_thread", _WHOLE)),
    ),
    "python": (("row", _WHOLE), ("id", _WHOLE), ("parent", _WHOLE)),
    "collectives": (
        *(("row", _WHOLE), ("collective", _CODE), ("in_elements", _WHOLE), ("out_elements", _WHOLE), ("group_size", _WHOLE)),
        *(("group", _CODE), ("group_description", _CODE), ("group_ranks", _CODE), ("dtype", _CODE), ("sequence", _WHOLE)),
    ),
    "stacks": (("row", _WHOLE), ("stack", _CODE)),
}
"""The rows of `_scan_events.h`, in their order, which also is that of the columns in a file."""

_DTYPES = {table: np.dtype(list(fields), align=True) for table, fields in _FIELDS.items()}


def _group(kind: Kind) -> int:
    """Return `enum group` of `_scan_events.h`."""
    return 1 if kind in ON_DEVICE else 2 if kind in SHAPED else 3 if kind == Kind.PYTHON else 0


_GROUPS = {category: _group(kind) for category, kind in BY_CATEGORY.items()}


@dataclass(frozen=True)
class Scanned:
    """A chunk of events.

    Attributes:
        count: events of all phases.
        rows: the complete events, and the arguments of some of them, by table of columns.py; texts are numbers of `texts`.
        texts: by column, in the order in which they first come. Those of "track" are pairs of process and thread.
        others: events that may be names of tracks or allocations.
    """

    count: int
    rows: dict[str, Array]
    texts: dict[str, list[Any]]
    others: list[Any]


def scanned(chunk: bytes) -> Scanned | None:
    """Return the events of a chunk, None if they must be decoded, or without the native module."""
    module = native(MODULE).module
    found = None if module is None else module.scan(chunk, _GROUPS)
    if found is None:
        return None
    count, columns, others, *tables = found
    try:
        texts = {name: _unescaped(column) for name, column in zip(TEXT_COLUMNS, columns, strict=True)}
        other_events = decode_list(others)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return Scanned(
        count=count,
        rows={name: np.frombuffer(rows, dtype) for (name, dtype), rows in zip(_DTYPES.items(), tables, strict=True)},
        texts=texts,
        others=other_events,
    )


def _unescaped(texts: list[Any]) -> list[Any]:
    """Return texts without escapes; the scanner gives those that have some as JSON strings."""
    return [msgspec.json.decode(text, type=str) if type(text) is bytes else text for text in texts]
