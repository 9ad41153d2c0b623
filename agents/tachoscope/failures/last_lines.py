"""Keeps the last lines that Python code of this process writes to `sys.stderr`, and changes nothing of them.

`write` of the stream is covered by an attribute of the object: its type, its descriptor and its buffer stay as they are. What
native code writes to descriptor 2 does not pass here.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Any

KEPT_LINES = 8
_LINE_CHARACTERS = 300


class LastLines:
    """The last lines written to a stream, of a bounded length each."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._open = ""

    def follow(self, stream: Any) -> None:
        """Keep from now on what is written to a stream; one that does not allow this is left alone."""
        with contextlib.suppress(Exception):
            write = stream.write

            def write_and_keep(text: str, /) -> Any:
                written = write(text)
                with contextlib.suppress(Exception):
                    self.add(text)
                return written

            stream.write = write_and_keep

    def add(self, text: str) -> None:
        """Take what was written."""
        *whole, rest = (self._open + text[-KEPT_LINES * _LINE_CHARACTERS :]).split("\n")
        self._lines.extend(_shown(line) for line in whole if line.strip())
        self._open = _shown(rest)

    def last(self) -> list[str]:
        """Return the last lines as they were written, the newest last."""
        return [*self._lines, *([self._open] if self._open.strip() else [])][-KEPT_LINES:]


def _shown(line: str) -> str:
    """Return the part of a line that stays on a terminal, the beginning of a long one."""
    return line.rstrip("\r").rpartition("\r")[2][:_LINE_CHARACTERS]
