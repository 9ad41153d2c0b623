"""The text of a trace as kineto writes it: how many steps it holds, and a copy that says whose it is.

A trace may have a gigabyte, so it is read piece by piece and never parsed as a whole.
"""

from __future__ import annotations

import gzip
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tachoscope_core.errors import TachoscopeError

_STEP = re.compile(
    rb'"cat":\s*"(?!gpu)\w{1,40}",\s*"name":\s*"((?:Optimizer\.step|ProfilerStep)#[^"]{1,200})"[^{}]{0,200}?'
    rb'"ts":\s*(\d{1,20}(?:\.\d{1,9})?),\s*"dur":\s*(\d{1,20}(?:\.\d{1,9})?)'
)
"""A mark on the CPU; on a GPU's line it stands once more."""
_OWN = b"ProfilerStep#"
_PIECE_BYTES = 1 << 20
_OVERLAP_BYTES = 1024
_HEAD_BYTES = 1 << 16
_MOST_STEPS = 100_000


def step_ends(descriptor: int, *, most_bytes: int) -> list[float]:
    """Return when steps ended, in seconds from any origin, in order: those that the profiler was told of, or the optimizer's.

    Any optimizer of torch marks its steps; of several the one counts that steps least. n marks mean at least n - 1 whole steps.
    """
    ends: dict[bytes, set[float]] = defaultdict(set)
    first = float("inf")
    for text in _pieces(descriptor, most_bytes):
        for match in _STEP.finditer(text):
            begin, seconds = float(match[2]) / 1e6, float(match[3]) / 1e6
            name = match[1]
            if name.startswith(_OWN):
                name, first = _OWN, min(first, begin)
            if len(ends[name]) < _MOST_STEPS:
                ends[name].add(begin + seconds)
        if len(ends) > 64:
            break
    if own := ends.pop(_OWN, None):
        return sorted({first} | own)  # where it begins no step had ended in this trace
    several = [found for found in ends.values() if len(found) > 1] or list(ends.values())
    return sorted(min(several, key=len, default=()))


def _pieces(descriptor: int, most_bytes: int) -> Iterator[bytes]:
    """Yield the text in pieces that overlap, so that each event is whole in one of them."""
    offset, rest = 0, b""
    while offset < most_bytes and (piece := os.pread(descriptor, _PIECE_BYTES, offset)):
        offset += len(piece)
        yield rest + piece
        rest = piece[-_OVERLAP_BYTES:]


def write_tagged(descriptor: int, target: Path, *, rank: int, world_size: int, about: dict[str, Any], most_bytes: int) -> None:
    """Write a copy, compressed, that says whose trace it is: kineto leaves that out when nobody's code asked it to record.

    Args:
        about: what else it is to say, under the key `tachoscope`. most_bytes: that are read: the process may still write.

    Raises:
        TachoscopeError: it does not begin as a trace does, or the copy cannot be written.
    """
    head = os.pread(descriptor, _HEAD_BYTES, 0)
    begin = head.find(b"{")
    if begin < 0 or head[:begin].strip() or head[begin + 1 :].lstrip()[:1] != b'"':
        raise TachoscopeError("not a trace: it does not begin with an object")
    keys: dict[str, Any] = {"tachoscope": about}
    if b'"distributedInfo"' not in head:
        keys["distributedInfo"] = {"rank": rank, "world_size": world_size}
    try:
        with target.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) as copy:
            copy.write(msgspec.json.encode(keys)[:-1] + b",\n")
            offset = begin + 1
            while offset < most_bytes and (piece := os.pread(descriptor, _PIECE_BYTES, offset)):
                copy.write(piece)
                offset += len(piece)
    except OSError as error:
        raise TachoscopeError(f"could not write {target}: {error.strerror}") from None
