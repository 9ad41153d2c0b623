"""Decodes the lines of a segment, sorted by how they can be stored: steps and heartbeats in columns, all others as they are.

Nearly all lines of nearly all segments are steps and heartbeats that columns hold exactly. So a segment is decoded as a whole, by
types that refuse what columns cannot hold; only if that fails, line by line.
"""

from __future__ import annotations

import functools
import io
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tachoscope_analyzers.records.beat_table import ExactBeat
from tachoscope_analyzers.records.step_table import ExactStep
from tachoscope_core.records import records

_OTHER_KINDS = [kind for kind in records.AnyRecord.__args__ if kind not in (records.StepDone, records.Heartbeat)]
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(functools.reduce(operator.or_, [ExactStep, ExactBeat, *_OTHER_KINDS]))
_MEMBERS = b"}\n{"

_Exact = list[tuple[Any, bytes]]


@dataclass(slots=True)
class SegmentLines:
    """The lines of a segment of a job.

    Attributes:
        steps, beats: each an `ExactStep` or an `ExactBeat` of the job.
        others: other lines as they were written, with their records; None: the line is not a record.
        begin, end: Unix seconds of the first and last record.
    """

    steps: list[Any] = field(default_factory=list)
    beats: _Exact = field(default_factory=list)
    others: list[tuple[records.AnyRecord | None, bytes]] = field(default_factory=list)
    begin: float = float("inf")
    end: float = 0.0


def lines_of(content: bytes, job: str) -> SegmentLines:
    """Return the lines of a segment of a job."""
    found = SegmentLines()
    for record, line in _decoded(content):
        if record is None:
            found.others.append((None, line))
            continue
        found.begin, found.end = min(found.begin, record.time), max(found.end, record.time)
        kind = type(record)
        if kind is ExactStep and record.job == job:
            found.steps.append(record)
        elif kind is ExactBeat and record.job == job:
            found.beats.append((record, line))
        elif kind is ExactStep or kind is ExactBeat:
            found.others.append((records.decode(line), line))
        else:
            found.others.append((record, line))
    return found


def _decoded(content: bytes) -> Iterator[tuple[Any, bytes]]:
    """Yield the record and the line of each line; None: it is not a record."""
    lines = [*io.BytesIO(content)]
    if lines and max(map(len, lines)) <= records.MAX_LINE_BYTES and _is_a_value_a_line(content, len(lines)):
        try:
            rows = _decoder.decode_lines(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            rows = []
        if len(rows) == len(lines):
            yield from zip(rows, lines, strict=True)
            return
    for line in lines:
        yield _record(line), line


def _is_a_value_a_line(content: bytes, lines: int) -> bool:
    """Return whether each line begins and ends a JSON object, so that as many objects as lines are one in each line."""
    return content.startswith(b"{") and content.endswith(b"}\n") and content.count(_MEMBERS) == lines - 1


def _record(line: bytes) -> Any:
    if line.endswith(b"\n") and len(line) <= records.MAX_LINE_BYTES:
        try:
            return _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    try:
        return records.decode(line)
    except (records.UnknownKindError, records.MalformedRecordError):
        return None
