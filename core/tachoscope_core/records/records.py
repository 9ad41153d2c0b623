"""The records that a job's processes write and that every analyzer reads, and how they are written and read.

One record is one JSON line, told apart by `kind`. Agent and probe may be of different versions: a field that a reader
does not know is ignored (shippers copy lines verbatim, so it is kept), a kind that it does not know is counted and skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tachoscope_core.records.base import (
    COMPUTING_PHASES,
    INTERRUPTED,
    LAUNCHER_RANK,
    MAX_COUNT,
    MAX_LINE_BYTES,
    MAX_SECONDS,
    MAX_TEXT,
    PHASES,
    SHARED_PHASES,
    Count,
    Name,
    Phase,
    Record,
    UnixSeconds,
    check_job_name,
    is_job_name,
)
from tachoscope_core.records.checkpoints import (
    CheckpointManifest,
    CheckpointRestored,
    CheckpointSaved,
    CheckpointVerified,
    ShardSum,
)
from tachoscope_core.records.data_shards import (
    ShardFailed,
    ShardQuarantined,
    ShardRead,
)
from tachoscope_core.records.failures import ProcessExited, ProcessFailed
from tachoscope_core.records.job_life import (
    JobEnded,
    PreemptionNotice,
    WorkerFailed,
    WorkerHung,
    WorkerRestarted,
)
from tachoscope_core.records.memory import (
    ControlGroupMemory,
    DeviceMemory,
    DeviceSegment,
    LiveBlocks,
    MemorySampled,
    OutOfMemory,
    ProcessMemory,
)
from tachoscope_core.records.services import (
    EngineWindow,
    RequestDone,
    ServiceEnded,
    ServiceStarted,
)
from tachoscope_core.records.training import (
    COMPILATIONS,
    DYNAMO_RESET,
    GRADIENT_STEPS,
    OTHER_THREADS,
    CollectiveDone,
    CompilationDone,
    Heartbeat,
    IntegrityEvent,
    JobStarted,
    LoaderSettings,
    StepDone,
    TraceCaptured,
    UpdatesApplied,
    plausible,
    step_seconds,
)

__all__ = [
    "COMPILATIONS",
    "COMPUTING_PHASES",
    "DYNAMO_RESET",
    "GRADIENT_STEPS",
    "INTERRUPTED",
    "KINDS",
    "LAUNCHER_RANK",
    "MAX_COUNT",
    "MAX_LINE_BYTES",
    "MAX_SECONDS",
    "MAX_TEXT",
    "OTHER_THREADS",
    "PHASES",
    "SHARED_PHASES",
    "AnyRecord",
    "CheckpointManifest",
    "CheckpointRestored",
    "CheckpointSaved",
    "CheckpointVerified",
    "CollectiveDone",
    "CompilationDone",
    "ControlGroupMemory",
    "Count",
    "DeviceMemory",
    "DeviceSegment",
    "EngineWindow",
    "Heartbeat",
    "IntegrityEvent",
    "JobEnded",
    "JobStarted",
    "LiveBlocks",
    "LoaderSettings",
    "MalformedRecordError",
    "MemorySampled",
    "Name",
    "OutOfMemory",
    "Phase",
    "PreemptionNotice",
    "ProcessExited",
    "ProcessFailed",
    "ProcessMemory",
    "Record",
    "RequestDone",
    "ServiceEnded",
    "ServiceStarted",
    "ShardFailed",
    "ShardQuarantined",
    "ShardRead",
    "ShardSum",
    "StepDone",
    "TraceCaptured",
    "UnixSeconds",
    "UnknownKindError",
    "UpdatesApplied",
    "WorkerFailed",
    "WorkerHung",
    "WorkerRestarted",
    "check_job_name",
    "decode",
    "decode_lines",
    "encode",
    "encode_all",
    "is_job_name",
    "plausible",
    "step_seconds",
]

AnyRecord = (
    JobStarted
    | StepDone
    | Heartbeat
    | CheckpointSaved
    | CheckpointManifest
    | CheckpointVerified
    | CheckpointRestored
    | CollectiveDone
    | CompilationDone
    | ShardRead
    | ShardFailed
    | WorkerFailed
    | ProcessFailed
    | ProcessExited
    | WorkerHung
    | WorkerRestarted
    | MemorySampled
    | OutOfMemory
    | PreemptionNotice
    | ShardQuarantined
    | IntegrityEvent
    | UpdatesApplied
    | ServiceStarted
    | RequestDone
    | EngineWindow
    | ServiceEnded
    | TraceCaptured
    | JobEnded
)

_decoder: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)
KINDS = frozenset(cls.__struct_config__.tag for cls in AnyRecord.__args__)


class _Kind(msgspec.Struct):
    kind: str


_kind_decoder = msgspec.json.Decoder(_Kind)


class UnknownKindError(ValueError):
    """The line is a sound record of a kind that this version does not know."""


class MalformedRecordError(ValueError):
    """The line is not a record."""


def decode(line: bytes) -> AnyRecord:
    """Decode one JSON line.

    Raises:
        UnknownKindError: a record of a kind from another version.
        MalformedRecordError: anything else that is not a record, with the field that is wrong.
    """
    if len(line) > MAX_LINE_BYTES:
        raise MalformedRecordError(f"line of {len(line)} bytes, longer than {MAX_LINE_BYTES}")
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            kind = _kind_decoder.decode(line).kind
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise MalformedRecordError(str(error)) from None
        if kind not in KINDS:
            raise UnknownKindError(kind) from None
        raise MalformedRecordError(str(error)) from None


def decode_lines(lines: bytes) -> list[AnyRecord] | None:
    """Decode JSON lines at once, in half the time; None: not all of them are records of known kinds, or some may be too long.

    None leaves nothing out: `decode` tells of each line what is wrong with it.
    """
    if len(lines) > MAX_LINE_BYTES:
        return None
    try:
        found = _decoder.decode_lines(lines)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # A record is one line: what is spread over several, or stands beside another, is none.
    return found if len(found) == lines.count(b"\n") + (not lines.endswith(b"\n")) else None


_encoder = msgspec.json.Encoder()


def encode(record: Record) -> bytes:
    """Encode a record as one JSON line, newline included; what is not Unicode in its texts, such as in a path, becomes `?`.

    Raises:
        TypeError, ValueError, OverflowError: a field holds what is not of its type.
    """
    try:
        return _encoder.encode(record) + b"\n"
    except UnicodeEncodeError:
        return _encoder.encode(_unicode(msgspec.to_builtins(record))) + b"\n"


def encode_all(made: Sequence[Record]) -> bytes:
    """Encode records as `encode` does each, in half its time."""
    try:
        return _encoder.encode_lines(made)
    except UnicodeEncodeError:
        return b"".join(map(encode, made))


def _unicode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_unicode(key): _unicode(one) for key, one in value.items()}
    return [_unicode(one) for one in value] if isinstance(value, list | tuple) else value
