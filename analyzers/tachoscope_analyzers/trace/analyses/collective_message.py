"""What a collective moves and for whom: the arguments noted at it or around its launch, and the size of its message."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.events.collective_names import TOTAL_OF_ALL_RANKS
from tachoscope_analyzers.trace.events.dtypes import element_bytes
from tachoscope_analyzers.trace.events.host_collectives import levels_above
from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.reading.trace import Columns, Group, Trace

Array = npt.NDArray[Any]

_TEXTS = ("collective", "group", "group_description", "group_ranks", "dtype")
_NUMBERS = ("in_elements", "out_elements", "group_size", "sequence")


class Arguments:
    """The arguments of collectives, shape (C,): text is "" and numbers are -1 where the trace does not tell.

    Args:
        trace: the trace.
        rows: the collectives.
        launch: the host event that launched each, or the collective itself, -1 where that is not known.
        operator_of: row of what is around each event.
    """

    def __init__(self, trace: Trace, rows: Rows, launch: Rows, operator_of: Rows) -> None:
        owners = np.asarray(trace.collectives["row"], dtype=np.int64)
        places = _first_found(owners, [rows, *levels_above(launch, operator_of)])
        self._values: dict[str, Array] = {name: texts_of(trace, trace.collectives, name, places) for name in _TEXTS}
        self._values |= {name: _numbers_of(trace.collectives, name, places) for name in _NUMBERS}
        self._complete_groups({group.name: group for group in trace.meta.groups})

    def __getitem__(self, name: str) -> Array:
        return self._values[name]

    def _complete_groups(self, groups: dict[str, Group]) -> None:
        """Complete process groups from the trace's own description."""
        told = self._values
        if len(groups) == 1:
            told["group"] = np.where(told["group"] == "", next(iter(groups)), told["group"]).astype(object)
        told["group_ranks"] = np.array([text.strip('"') for text in told["group_ranks"]], dtype=object)
        for name, group in groups.items():
            mine = told["group"] == name
            told["group_description"][mine & (told["group_description"] == "")] = group.description
            told["group_ranks"][mine & (told["group_ranks"] == "")] = str(group.ranks) if group.ranks else ""
            told["group_size"] = np.where(mine & (told["group_size"] < 0), len(group.ranks) or -1, told["group_size"])


def message_bytes(trace: Trace, arguments: Arguments, kinds: Array, shaped: Rows) -> Rows:
    """Return the size of each message as nccl-tests counts it, by the arguments, else by the shapes of its annotation, else -1.

    Args:
        trace: the trace.
        arguments: of the collectives.
        kinds: kind of each, shape (C,).
        shaped: row of the annotation whose shapes tell what it is given, -1 for none.
    """
    group_size = arguments["group_size"]
    by_arguments = _bytes_by_arguments(arguments, kinds)
    own = _bytes_by_shapes(trace, shaped)
    by_all = np.where(group_size > 0, own * group_size, -1)
    by_shapes = np.where(own < 0, -1, np.where(np.isin(kinds, TOTAL_OF_ALL_RANKS), by_all, own))
    return np.where(by_arguments >= 0, by_arguments, by_shapes)


def _bytes_by_arguments(arguments: Arguments, kinds: Array) -> Rows:
    element = np.array([element_bytes(text) for text in arguments["dtype"]], dtype=np.int64)
    put_in, got_out, group_size = arguments["in_elements"], arguments["out_elements"], arguments["group_size"]
    by_all = np.where(got_out > 0, got_out, np.where((put_in >= 0) & (group_size > 0), put_in * group_size, -1))
    elements = np.where(np.isin(kinds, TOTAL_OF_ALL_RANKS), by_all, np.where(kinds == "recv", got_out, put_in))
    return np.where((elements >= 0) & (element > 0), elements * element, -1)


def _bytes_by_shapes(trace: Trace, rows: Rows) -> Rows:
    """Return the bytes of events' tensors, -1 if shapes or types are unknown."""
    places = _place(np.asarray(trace.operators["row"], dtype=np.int64), rows)
    keys = list(zip(*(texts_of(trace, trace.operators, column, places) for column in ("shapes", "types")), strict=True))
    known = {key: _tensor_bytes(*key) for key in set(keys)}
    return np.array([known[key] for key in keys], dtype=np.int64)


def _tensor_bytes(shapes: str, types: str) -> int:
    try:
        sizes = [
            (math.prod(int(length) for length in shape), element_bytes(str(dtype)))
            for shape, dtype in zip(json.loads(shapes), json.loads(types), strict=True)
        ]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return -1
    total = sum(elements * size for elements, size in sizes)
    sound = sizes and all(elements >= 0 and size > 0 for elements, size in sizes) and total < 1 << 62
    return total if sound else -1


def texts_of(trace: Trace, table: Columns, column: str, places: Rows) -> Array:
    """Return the texts of a column of codes at some places, "" at -1, shape of `places`."""
    if not len(table) or not len(places):
        return np.full(len(places), "", dtype=object)
    return np.where(places >= 0, trace.strings[table[column][places]], "").astype(object)


def _numbers_of(table: Columns, column: str, places: Rows) -> Rows:
    if not len(table) or column not in table:  # some writers have no such column
        return np.full(len(places), -1, dtype=np.int64)
    return np.where(places >= 0, table[column][places], -1).astype(np.int64)


def _first_found(owners: Rows, candidates: list[Rows]) -> Rows:
    """Return the index in `owners` of the first candidate found there, -1 for none."""
    found = np.full(len(candidates[0]), -1, dtype=np.int64)
    for rows in candidates:
        found = np.where(found >= 0, found, _place(owners, rows))
    return found


def _place(owners: Rows, wanted: Rows) -> Rows:
    """Return the index of each row among sorted ones, -1 if absent."""
    if not len(owners):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(owners, wanted), len(owners) - 1)
    return np.where(owners[place] == wanted, place, -1)
