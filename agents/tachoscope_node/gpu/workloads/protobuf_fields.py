"""Reading of serialised protocol buffers, as far as names need it: the fields that hold text or other messages.

Without the protobuf package, which would cost the agent 4 MiB for five messages. https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """These bytes are no message."""


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and content of each field that holds text or a message; numbers are passed over.

    Raises:
        WireError: these bytes are no message.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _LENGTH:
            size, at = _varint(message, at)
            if size > end - at:
                raise WireError(f"a field of {size} bytes at {at} of {end}")
            yield key >> 3, message[at : at + size]
            at += size
        elif kind == _VARINT:
            _, at = _varint(message, at)
        elif kind in {_FIXED64, _FIXED32}:
            at += 8 if kind == _FIXED64 else 4
            if at > end:
                raise WireError(f"a number that ends after {end} bytes")
        else:
            raise WireError(f"a field of kind {kind} at {at} of {end}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift, byte in zip(range(0, 70, 7), message[at : at + 10], strict=False):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + shift // 7 + 1
    raise WireError(f"a number without end at {at} of {len(message)}")
