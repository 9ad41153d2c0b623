"""What stands beside the events of a trace, taken out of its header and trailer without building what nobody asks for."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Raw, Struct

from tachoscope_analyzers.trace.reading.decode_events import repaired

_ABSENT = Raw(b"")
_MOST_BYTES = 16 << 20
"""Longer descriptions than this are skipped: as objects they would take twenty times as much memory."""


class _TrailerFields(Struct):
    distributed: Raw = msgspec.field(default=_ABSENT, name="distributedInfo")
    devices: Raw = msgspec.field(default=_ABSENT, name="deviceProperties")
    base: Raw = msgspec.field(default=_ABSENT, name="baseTimeNanoseconds")
    schema: Raw = msgspec.field(default=_ABSENT, name="schemaVersion")
    stack: Raw = msgspec.field(default=_ABSENT, name="with_stack")
    shapes: Raw = msgspec.field(default=_ABSENT, name="record_shapes")


_decoder = msgspec.json.Decoder(_TrailerFields)


def keys_outside_events(header: bytes, trailer: bytes) -> dict[str, Any]:
    """Return the known keys beside the events by name, of any type; none for a bare list.

    `header` ends with the opening bracket of the events; `trailer` starts with the closing one, or is empty where the file was cut.
    A damaged trailer costs only what it holds.
    """
    if not header.lstrip().startswith(b"{"):
        return {}
    for text in (header + trailer, header + b"]}"):
        found = _quickly(text)
        if found is None:
            found = _mended(text)
        if found is not None:
            return found
    return {}


def _quickly(text: bytes) -> dict[str, Any] | None:
    try:
        known = _decoder.decode(text)
        values = {field.encode_name: getattr(known, field.name) for field in msgspec.structs.fields(_TrailerFields)}
        return {name: json.loads(bytes(value)) for name, value in values.items() if 0 < len(bytes(value)) <= _MOST_BYTES}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _mended(text: bytes) -> dict[str, Any] | None:
    if len(text) > _MOST_BYTES:
        return None
    try:
        found = json.loads(repaired(text), strict=False)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
