"""Keeps the last lines that Python code of this process writes to `sys.stderr`, and changes nothing of them.

`write` of the stream is covered by an attribute of the object: its type, its descriptor and its buffer stay as they are. What
native code writes to descriptor 2 does not pass here. Secrets are hidden when the lines are reported, in whole lines: a part of one
is not recognized. Only private keys are dropped immediately, since they span more lines than are kept.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Any

from tachoscope.failures import texts

KEPT_LINES = 8
_LINE_CHARACTERS = 4096
_KEY_LINES = 200
"""A private key is not longer: what did not end by then is not one."""


class LastLines:
    """The last lines written to a stream, of a bounded length each."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._open = ""
        self._key_lines_left = 0

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
        if len(text) > KEPT_LINES * _LINE_CHARACTERS:  # the first line may begin within a secret
            whole = whole[1:]
            self._note_key(text[: -KEPT_LINES * _LINE_CHARACTERS])
        self._lines.extend(_shown(line) for line in whole if line.strip() and not self._is_of_key(line))
        self._open = _shown(rest)

    def last(self) -> list[str]:
        """Return the last lines as they were written, the newest last."""
        is_open = self._open.strip() and not self._key_lines_left
        return [*self._lines, *([self._open] if is_open else [])][-KEPT_LINES:]

    def _note_key(self, text: str) -> None:
        begin, end = text.rfind("-----BEGIN"), text.rfind("-----END")
        self._key_lines_left = 0 if begin <= end else _KEY_LINES if "PRIVATE KEY" in text[begin:] else 0

    def _is_of_key(self, line: str) -> bool:
        """Return whether a line is of a private key."""
        if "PRIVATE KEY" in line:
            self._key_lines_left = _KEY_LINES if "-----BEGIN" in line and "-----END" not in line else 0
            return "-----" in line
        self._key_lines_left = max(self._key_lines_left - 1, 0)
        return self._key_lines_left > 0


def _shown(line: str) -> str:
    """Return the part of a line that stays on a terminal, the beginning of a long one."""
    return texts.cut(line.rstrip("\r").rpartition("\r")[2], _LINE_CHARACTERS)
