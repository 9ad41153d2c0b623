"""Writes samples into a Prometheus by its remote-write protocol, version 1: some hundred thousand series in a minute.

https://prometheus.io/docs/specs/prw/remote_write_spec/ The messages are arrays of bytes, since a sample is as long as any other;
snappy's blocks hold them as they are, as its format allows: https://github.com/google/snappy/blob/main/format_description.txt
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
MOST_BYTES = 8 << 20
_SAMPLE = 18
_TIME_BYTES = 6
"""Milliseconds since 1970 have 41 bits, and seven go into a byte: until 2109."""


class Sender:
    """Sends series to a Prometheus on this machine that was started with `--web.enable-remote-write-receiver`."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._parts: list[bytes] = []
        self._size = 0
        self.series = self.samples = 0

    def add(self, labels: Mapping[str, str], samples: bytes) -> None:
        """Add a series: its labels, `__name__` among them, and samples as `encoded` gives them."""
        message = b"".join(_label(name, labels[name]) for name in sorted(labels)) + samples
        self._parts += [b"\x0a", _varint(len(message)), message]
        self._size += len(message)
        self.series += 1
        self.samples += len(samples) // _SAMPLE
        if self._size >= MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what was added."""
        if not self._parts:
            return
        body = b"".join(self._parts)
        self._parts, self._size = [], 0
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        # One literal: its tag, and its length less one in four bytes.
        framed = _varint(len(body)) + b"\xfc" + (len(body) - 1).to_bytes(4, "little") + body
        self._connection.request("POST", "/api/v1/write", framed, headers)
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"Prometheus refused samples: {answer.status} {said[:500]!r}")


def encoded(times: Floats, values: Floats) -> list[bytes]:
    """Return the samples of each row of `values`, one column for each of `times` in Unix seconds."""
    rows, columns = values.shape
    made = np.empty((rows, columns, _SAMPLE), dtype=np.uint8)
    made[:, :, 0], made[:, :, 1], made[:, :, 2], made[:, :, 11] = 0x12, _SAMPLE - 2, 0x09, 0x10
    made[:, :, 3:11] = np.ascontiguousarray(values, dtype="<f8").view(np.uint8).reshape(rows, columns, 8)
    milliseconds = np.round(times * 1000).astype(np.int64)
    for place in range(_TIME_BYTES):
        more = 0x80 if place < _TIME_BYTES - 1 else 0
        made[:, :, 12 + place] = ((milliseconds >> (7 * place)) & 0x7F) | more
    return [row.tobytes() for row in made]


def _label(name: str, value: str) -> bytes:
    first, second = name.encode(), value.encode()
    message = b"\x0a" + _varint(len(first)) + first + b"\x12" + _varint(len(second)) + second
    return b"\x0a" + _varint(len(message)) + message


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
