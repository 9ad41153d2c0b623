"""The datagrams of kineto's daemon protocol: what a process asks, and what its node's agent answers.

A process that has torch and `KINETO_USE_DAEMON` set asks every 5 s whether it shall record. Both ways a datagram is a head of 40
bytes, the length of what follows and a type of 32 bytes, and what follows it:
`ctxt`: GPU, pid, job (int32, int32, int64); the answer is how many processes are registered for that GPU (int32).
`req`: kinds of configuration that it takes now (int32: 1 events, 2 activities), count of pids (int32), job (int64), pids (int32
each, its own first); the answer is the text of a configuration, empty for none.
https://github.com/facebookincubator/dynolog/blob/main/dynolog/src/ipcfabric/FabricManager.h,
https://github.com/pytorch/kineto/blob/main/libkineto/src/IpcFabricConfigClient.h; measured with torch 2.13.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

NAME = "dynolog"
"""Of the daemon that kineto looks for, in a directory."""
ABSTRACT = b"\0dynolog\0"
"""The same without a directory."""
MAX_BYTES = 1 << 13
"""Longest datagram that is read: some 2,000 ancestors."""
TAKES_ACTIVITIES = 2
_STEPS = "# TACHOSCOPE_STEPS"
_HEAD = struct.Struct("=Q32s")
_CONTEXT = struct.Struct("=iiq")
_REQUEST = struct.Struct("=iiq")


class NotUnderstoodError(ValueError):
    """A datagram is none of the protocol; the message says why."""


@dataclass(frozen=True, slots=True)
class ProfileQuery:
    """What a process asks. `idle`: it records nothing now and takes a configuration. `pid`: its own, as it sees it itself."""

    kind: Literal["ctxt", "req"]
    pid: int
    idle: bool = False


def parse(datagram: bytes) -> ProfileQuery:
    """Return what a process asks.

    Raises:
        NotUnderstoodError: it is not of the protocol.
    """
    if len(datagram) < _HEAD.size:
        raise NotUnderstoodError(f"{len(datagram)} bytes are not a header")
    size, kind = _HEAD.unpack_from(datagram)
    body = datagram[_HEAD.size :]
    if size != len(body):
        raise NotUnderstoodError(f"it says that {size} bytes follow, and {len(body)} do")
    kind = kind.rstrip(b"\0")
    if kind == b"ctxt" and len(body) == _CONTEXT.size:
        _, pid, _ = _CONTEXT.unpack(body)
        return ProfileQuery("ctxt", pid)
    if kind == b"req" and len(body) >= _REQUEST.size:
        takes, count, _ = _REQUEST.unpack_from(body)
        if count < 1 or len(body) != _REQUEST.size + 4 * count:
            raise NotUnderstoodError(f"it says that {count} pids follow in {len(body) - _REQUEST.size} bytes")
        (pid,) = struct.unpack_from("=i", body, _REQUEST.size)
        return ProfileQuery("req", pid, bool(takes & TAKES_ACTIVITIES))
    raise NotUnderstoodError(f"no message is of type {kind[:16]!r} and {len(body)} bytes")


def answer(asked: ProfileQuery, text: str = "", count: int = 1) -> bytes:
    """Return the datagram that answers: the text of a configuration, or how many processes have the GPU."""
    body = text.encode() if asked.kind == "req" else struct.pack("=i", count)
    return _HEAD.pack(len(body), asked.kind.encode()) + body


def encode_query(pid: int, *, idle: bool) -> bytes:
    """Return the datagram by which a process asks what to record."""
    body = _REQUEST.pack(1 | (TAKES_ACTIVITIES if idle else 0), 1, 0) + struct.pack("=i", pid)
    return _HEAD.pack(len(body), b"req") + body


def answered(datagram: bytes) -> str:
    """Return the text of a configuration that came as an answer; empty: none.

    Raises:
        NotUnderstoodError: it is no such answer.
    """
    if len(datagram) < _HEAD.size:
        raise NotUnderstoodError(f"{len(datagram)} bytes are not a header")
    size, kind = _HEAD.unpack_from(datagram)
    body = datagram[_HEAD.size :]
    if size != len(body) or kind.rstrip(b"\0") != b"req":
        raise NotUnderstoodError(f"no answer is of type {kind[:16]!r} and {len(body)} bytes")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise NotUnderstoodError(f"no text: {error}") from None


@dataclass(frozen=True, slots=True)
class ProfileOrder:
    """What a process is to record: from `start`, Unix seconds, for `seconds`, into `file`, whose name gets its pid.

    `steps`: whole ones that are wanted, for who can count them; 0: not said.
    """

    start: float
    seconds: float
    file: str
    steps: int = 0


def ordered(text: str) -> ProfileOrder:
    """Return what the text of a configuration asks for.

    Raises:
        NotUnderstoodError: it lacks a key, or a value is none.
    """
    pairs = (line.partition("=") for line in text.splitlines())
    values = {key.strip(): value.strip() for key, _, value in pairs}
    try:
        start, milliseconds = int(values["PROFILE_START_TIME"]), int(values["ACTIVITIES_DURATION_MSECS"])
        order = ProfileOrder(start / 1e3, milliseconds / 1e3, values["ACTIVITIES_LOG_FILE"], int(values.get(_STEPS, "0")))
    except (KeyError, ValueError) as error:
        raise NotUnderstoodError(f"no configuration: {error!r}") from None
    if order.start <= 0 or order.seconds <= 0 or not order.file.startswith("/"):
        raise NotUnderstoodError(f"no configuration: {order}")
    return order


def configuration(*, start: float, seconds: float, file: str, trace_id: str, steps: int = 0) -> str:
    """Return the text that makes kineto record.

    Args:
        start: Unix seconds. file: what the trace is written to; kineto puts `_<pid>` before its suffix.
        steps: that are wanted, as a comment, which kineto passes over and the probe reads.

    Raises:
        ValueError: the file's name would end its line.
    """
    if not file.isprintable() or "#" in file:  # what follows # is a comment
        raise ValueError(f"no file of a configuration: {file!r}")
    lines = {
        "ACTIVITIES_LOG_FILE": file,
        "PROFILE_START_TIME": round(start * 1e3),
        "ACTIVITIES_DURATION_MSECS": max(round(seconds * 1e3), 1),
        "PROFILE_REPORT_INPUT_SHAPES": "true",
        "REQUEST_TRACE_ID": trace_id,
    }
    lines |= {_STEPS: steps} if steps else {}
    return "".join(f"{key}={value}\n" for key, value in lines.items())
