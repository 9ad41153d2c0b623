"""Numbers for texts and tracks, given in the order in which they come; their memory is bounded whatever a file holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_STRINGS = 1_000_000
MOST_STRING_BYTES = 256 << 20
MOST_TRACKS = 100_000
MOST_TRACK_BYTES = 64 << 20
TOO_MANY = "(one of too many different texts)"
"""What the texts share that came after the table was full: a trace with so many has names that are made per event."""

Array = npt.NDArray[Any]


class Codes(dict[Any, int]):
    """Code by text.

    Attributes:
        overflow: how many look-ups found the table full.
    """

    def __init__(self, most: int, *first: str, most_bytes: int = MOST_STRING_BYTES) -> None:
        super().__init__({value: code for code, value in enumerate(first)})
        self.overflow = 0
        self._most = most
        self._bytes_left = most_bytes

    def __missing__(self, value: str) -> int:
        code = len(self)
        if code >= self._most - 1 or len(value) > self._bytes_left:
            self.overflow += 1
            return self.setdefault(TOO_MANY, code)
        self._bytes_left -= len(value)
        self[value] = code
        return code

    def has_room(self, values: list[str]) -> bool:
        """Return whether each of these has a code of its own or surely gets one."""
        return len(self) + len(values) < self._most and sum(map(len, values)) <= self._bytes_left

    def encode(self, values: list[str], dtype: Any = np.int32) -> Array:
        """Return the code of each text, shape (N,)."""
        return np.fromiter(map(self.__getitem__, values), dtype, len(values))


class TrackCodes(dict[Any, int]):
    """Code by (process, thread); one that is written as a number here and as text there is one and the same.

    Attributes:
        texts: code by (process, thread) as text. overflow: how many look-ups found the table full.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[tuple[str, str], int] = {}
        self.overflow = 0
        self._bytes_left = MOST_TRACK_BYTES

    def __missing__(self, value: tuple[Any, Any]) -> int:
        text = (track_text(value[0]), track_text(value[1]))
        size = len(text[0]) + len(text[1])
        if len(self) >= MOST_TRACKS or size > self._bytes_left:
            self.overflow += 1
            return self.texts.setdefault(("", TOO_MANY), len(self.texts))
        self._bytes_left -= size
        code = self[value] = self.texts.setdefault(text, len(self.texts))
        return code

    def has_room(self, pairs: list[tuple[Any, Any]]) -> bool:
        """Return whether each of these has a code of its own or surely gets one."""
        size = sum(len(track_text(value)) for pair in pairs for value in pair)
        return len(self) + len(pairs) <= MOST_TRACKS and size <= self._bytes_left

    def encode(self, pairs: Iterable[tuple[Any, Any]], count: int) -> Array:
        """Return the code of each track, shape (count,)."""
        return np.fromiter(map(self.__getitem__, pairs), np.int32, count)


def track_text(value: Any) -> str:
    """Return a process or thread as text, "" where the event names none."""
    return "" if value is None else str(value)


def clean(text: str) -> str:
    """Return text that can be written as UTF-8; JSON may hold halves of surrogate pairs."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
