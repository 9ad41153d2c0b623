"""JSON text of whole events to typed structs: fast where the text is sound, and event by event where it is not."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Raw, Struct

from tachoscope_analyzers.trace.reading.json_brackets import BracketError, ends_of

Track = int | str | None
NOTHING = Raw(b"")
"""Text of an argument that is absent."""


class Args(Struct, frozen=True, gc=False):
    """What is kept of a complete event's arguments; -1, None and `NOTHING` stand for absent."""

    external: int = msgspec.field(default=-1, name="External id")
    external_old: int = msgspec.field(default=-1, name="external id")
    correlation: int = -1
    stream: int | str = -1
    device: int = -1
    bytes: int | str = -1
    grid: Raw = NOTHING
    block: Raw = NOTHING
    occupancy: float = msgspec.field(default=-1.0, name="est. achieved occupancy %")
    blocks_per_sm: float = msgspec.field(default=-1.0, name="blocks per SM")
    graph_node: int = msgspec.field(default=-1, name="graph node id")
    collective: str | None = msgspec.field(default=None, name="Collective name")
    in_elements: int = msgspec.field(default=-1, name="In msg nelems")
    out_elements: int = msgspec.field(default=-1, name="Out msg nelems")
    group_size: int = msgspec.field(default=-1, name="Group size")
    group: str | None = msgspec.field(default=None, name="Process Group Name")
    group_description: str | None = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Raw = msgspec.field(default=NOTHING, name="Process Group Ranks")
    dtype: str | None = None
    collective_sequence: int = msgspec.field(default=-1, name="Seq")
    shapes: Raw = msgspec.field(default=NOTHING, name="Input Dims")
    types: Raw = msgspec.field(default=NOTHING, name="Input type")
    concrete: Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")
    sequence: int = msgspec.field(default=-1, name="Sequence number")
    forward_thread: int = msgspec.field(default=-1, name="Fwd thread id")
    stack: str | None = msgspec.field(default=None, name="Call stack")
    python_id: int = msgspec.field(default=-1, name="Python id")
    python_parent: int | None = msgspec.field(default=-1, name="Python parent id")
    wait_stream: int = msgspec.field(default=-1, name="wait_on_stream")
    wait_correlation: int = msgspec.field(default=-1, name="wait_on_cuda_event_record_corr_id")


class InstantArgs(Struct, frozen=True, gc=False):
    """What is kept of an instant event's arguments: an allocation on a device."""

    bytes: int | None = msgspec.field(default=None, name="Bytes")
    address: int = msgspec.field(default=0, name="Addr")
    device_type: int = msgspec.field(default=-1, name="Device Type")
    device: int = msgspec.field(default=-1, name="Device Id")
    allocated: int = msgspec.field(default=-1, name="Total Allocated")
    reserved: int = msgspec.field(default=-1, name="Total Reserved")


class MetaArgs(Struct, frozen=True, gc=False):
    """Names of processes and threads."""

    name: str = ""
    labels: str = ""


NO_ARGS, _NO_INSTANT_ARGS, _NO_META_ARGS = Args(), InstantArgs(), MetaArgs()


class Complete(Struct, gc=False, tag_field="ph", tag="X"):
    """An event with begin and duration, both in microseconds; NaN stands for no duration."""

    ts: Raw
    name: str = ""
    cat: str = ""
    dur: float = math.nan
    pid: Track = None
    tid: Track = None
    args: Args = NO_ARGS


class Begin(Struct, gc=False, tag_field="ph", tag="B"):
    """The begin of an event whose end is a record of its own."""

    ts: Raw
    name: str = ""
    cat: str = ""
    pid: Track = None
    tid: Track = None
    args: Args = NO_ARGS


class End(Struct, gc=False, tag_field="ph", tag="E"):
    """The end of what was begun last on the same track."""

    ts: Raw
    pid: Track = None
    tid: Track = None


class Instant(Struct, gc=False, tag_field="ph", tag="i"):
    """A moment; of these, allocations and the profiler's own window are kept."""

    ts: Raw
    name: str = ""
    args: InstantArgs = _NO_INSTANT_ARGS


class Meta(Struct, gc=False, tag_field="ph", tag="M"):
    """The name of a process or thread."""

    name: str = ""
    pid: Track = None
    tid: Track = None
    args: MetaArgs = _NO_META_ARGS


Event = Complete | Begin | End | Instant | Meta
_KEPT: tuple[type[Struct], ...] = (Complete, Begin, End, Instant, Meta)
_BY_PHASE = {"X": Complete, "B": Begin, "E": End, "i": Instant, "M": Meta}
_SKIPPED_PHASES = "sftCbenNODPRcvVSTpFI"
"""Flows, counters, asynchronous and object events: correlation ids tell what the flows tell."""
_SKIPPED = tuple(msgspec.defstruct(f"Skipped{ord(phase)}", [], tag_field="ph", tag=phase, gc=False) for phase in _SKIPPED_PHASES)

_any: Any = Complete
for _type in (*_KEPT[1:], *_SKIPPED):
    _any = _any | _type
_STRUCTS: tuple[type[Struct], ...] = (*_KEPT, Args, InstantArgs, MetaArgs)
_FIELDS: dict[Any, Any] = {kind: msgspec.structs.fields(kind) for kind in _STRUCTS}
_chunk_decoder = msgspec.json.Decoder(list[_any])
_event_decoder = msgspec.json.Decoder(_any)


class MalformedEventError(ValueError):
    """An event that no reading makes sense of; `offset` bytes into the chunk."""

    def __init__(self, reason: str, offset: int, text: bytes) -> None:
        super().__init__(reason)
        self.offset = offset
        self.text = text


def decode(chunk: bytes) -> list[Any]:
    """Return the events of a chunk of sound JSON, the skipped ones too, as structs of their own types.

    Commas and white space may stand around them.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError, RecursionError: the text is not sound, or a field has another type than expected.
    """
    begin, end = 0, len(chunk)
    while begin < end and chunk[begin] in _BETWEEN:
        begin += 1
    while begin < end and chunk[end - 1] in _BETWEEN:
        end -= 1
    return decode_list(b"".join((b"[", memoryview(chunk)[begin:end], b"]")))  # one copy, of megabytes


def decode_list(text: bytes) -> list[Any]:
    """Return the events of a JSON list, as `decode` does, with its errors."""
    return _chunk_decoder.decode(text)


def decode_each(chunk: bytes, counts: Counter[str]) -> tuple[list[Any], int]:
    """Return the events of a chunk, read one by one and fixed where that is possible, and where the array's end is (-1: not here).

    `counts` takes what was `mended_events`, `events_without_time` and `events_of_unknown_phase`.

    Raises:
        MalformedEventError: an event is not a JSON object even after fixing.
    """
    try:
        ends, closed = ends_of(chunk)
    except BracketError as error:
        raise MalformedEventError(str(error), 0, chunk) from None
    events: list[Any] = []
    start = 0
    for end in ends.tolist():
        text = chunk[start:end].lstrip(_BETWEEN)
        event = _one(text, end - len(text), counts)
        if event is not None:
            events.append(event)
        start = end
    rest = chunk[start : len(chunk) if closed is None else closed].strip(_BETWEEN)
    if rest:
        raise MalformedEventError("this is not an event", start, rest)
    return events, -1 if closed is None else closed


def _one(text: bytes, offset: int, counts: Counter[str]) -> Any:
    try:
        return _event_decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    if len(text) > _MOST_MENDED_BYTES:
        raise MalformedEventError("it is broken, and too long to be fixed", offset, text)
    try:
        row = json.loads(repaired(text), strict=False, parse_float=str)
    except RecursionError:
        raise MalformedEventError("it is nested too deeply", offset, text) from None
    except ValueError as error:
        raise MalformedEventError(str(error), offset, text) from None
    if not isinstance(row, dict):
        raise MalformedEventError("it is not an object", offset, text)
    phase = row.get("ph")
    kind = _BY_PHASE.get(phase) if isinstance(phase, str) else None
    if kind is None:
        counts["events_of_unknown_phase"] += phase not in _SKIPPED_PHASES if isinstance(phase, str) else bool(row)
        return None
    event = _converted(kind, row)
    counts["mended_events" if event is not None else "events_without_time"] += 1
    return event


_BETWEEN = b" \t\r\n,"
_MOST_MENDED_BYTES = 4 << 20
_MOST_DIGITS = 19
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')


def repaired(text: bytes) -> str:
    """Return text with what writers get wrong set right: bytes that are no UTF-8, and lone backslashes (paths of Windows)."""
    return _BAD_ESCAPE.sub(r"\\\\", text.decode("utf-8", errors="replace"))


def _converted(kind: Any, row: dict[str, Any]) -> Any:
    """Convert a row of any types to an event; None without a numeric time."""
    values: dict[str, Any] = {}
    for field in _FIELDS[kind]:
        value = row.get(field.encode_name)
        if field.name == "ts":
            number = _number(value)
            if number is None:
                return None
            values["ts"] = Raw(str(number).encode())
        elif field.name == "args":
            values["args"] = _arguments(field.type, value if isinstance(value, dict) else {})
        elif field.name == "dur":
            number = _number(value)
            values["dur"] = math.nan if number is None else float(number)
        elif field.name in {"pid", "tid"}:
            values[field.name] = value if value is None or type(value) in {int, str} else str(value)
        else:
            values[field.name] = "" if value is None else str(value)
    return kind(**values)


def _arguments(kind: Any, row: dict[str, Any]) -> Any:
    values: dict[str, Any] = {}
    for field in _FIELDS[kind]:
        value = row.get(field.encode_name)
        if value is None:
            continue
        if field.type is Raw:
            values[field.name] = Raw(json.dumps(value).encode())
        elif isinstance(field.default, int | float) or field.name == "bytes":
            if (number := _number(value)) is not None and number.adjusted() < _MOST_DIGITS and abs(number) < 1 << 63:
                values[field.name] = float(number) if field.type is float else int(number)
        else:
            values[field.name] = str(value)
    return kind(**values)


def _number(value: Any) -> Decimal | None:
    """Return a finite number, also from a string, with fractions as written."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        return None
    return number if number.is_finite() else None
