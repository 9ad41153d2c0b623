"""Where values end in JSON text, found by counting quotes and brackets; the text comes piece by piece and is not parsed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tachoscope_core.native import native

MODULE = "tachoscope_analyzers.trace.reading._scan"

Places = npt.NDArray[np.int64]

_QUOTE, _BACKSLASH = 0x22, 0x5C
_STEP = np.zeros(256, dtype=np.int8)
_STEP[[0x7B, 0x5B]], _STEP[[0x7D, 0x5D]] = 1, -1
_SPECIAL = _STEP != 0
_SPECIAL[_QUOTE] = True


_PIECE_BYTES = 1 << 20


class BracketError(ValueError):
    """A bracket closes that was never opened."""


class Brackets:
    """Counts through an array's text; the first piece starts between two of its values."""

    def __init__(self) -> None:
        self._depth = 0
        self._inside = False
        self._backslash = False

    def ends(self, piece: bytes) -> tuple[Places, int | None]:
        """Return where the array's objects and arrays end in this piece, shape (E,), and where its own bracket closes, or None.

        Raises:
            BracketError: another bracket closes in its stead.
        """
        data = np.frombuffer(piece, dtype=np.uint8)
        special = np.flatnonzero(_SPECIAL[data])
        is_quote = data[special] == _QUOTE
        quotes = self._real(data, special[is_quote])
        brackets = special[~is_quote]
        inside = (np.searchsorted(quotes, brackets) + self._inside) % 2 == 1
        brackets = brackets[~inside]
        self._inside = bool((len(quotes) + self._inside) % 2)
        step = _STEP[data[brackets]]
        depth = self._depth + np.cumsum(step, dtype=np.int64)
        closed = None
        below = np.flatnonzero(depth < 0)
        if len(below):
            closed = int(brackets[below[0]])
            if data[closed] != 0x5D:
                raise BracketError("a closing bracket has no opening one")
            brackets, depth, step = brackets[: below[0]], depth[: below[0]], step[: below[0]]
        self._depth = int(depth[-1]) if len(depth) else self._depth
        return np.asarray(brackets[(depth == 0) & (step == -1)] + 1), closed

    def last_end(self, text: bytes) -> tuple[int, int | None]:
        """Return the last of what `ends` finds in a text of any length, 0 for none, and where the array's bracket closes, or None.

        Raises:
            BracketError: a closing bracket has no opening one.
        """
        module = native(MODULE).module
        found = None if module is None else module.last_end(text, self._depth, self._inside, self._backslash)
        if found is None:
            ends, closed = ends_of(text, self)
            return int(ends[-1]) if len(ends) else 0, closed
        end, bracket, self._depth, self._inside, self._backslash = found
        return max(end, 0), None if bracket < 0 else bracket

    def _real(self, data: npt.NDArray[np.uint8], quotes: Places) -> Places:
        """Return quotes that are not escaped by an odd number of backslashes."""
        slashes = np.flatnonzero(data == _BACKSLASH)
        escaped_first = self._backslash
        self._backslash = False
        if not len(slashes):
            return quotes[1:] if escaped_first and len(quotes) and quotes[0] == 0 else quotes
        begins = np.append(True, np.diff(slashes) != 1)
        run = np.arange(len(slashes)) - np.maximum.accumulate(np.where(begins, np.arange(len(slashes)), 0)) + 1
        if escaped_first and slashes[0] == 0:
            run[: np.flatnonzero(begins)[1] if begins.sum() > 1 else len(run)] += 1
        if slashes[-1] == len(data) - 1:
            self._backslash = bool(run[-1] % 2)
        before = np.searchsorted(slashes, quotes) - 1
        directly = (before >= 0) & (slashes[np.maximum(before, 0)] == quotes - 1)
        escaped = directly & (run[np.maximum(before, 0)] % 2 == 1)
        if escaped_first and len(quotes) and quotes[0] == 0:
            escaped[0] = True
        return np.asarray(quotes[~escaped])


def ends_of(text: bytes, counter: Brackets | None = None) -> tuple[Places, int | None]:
    """Return what `Brackets.ends` does for a text of any length, in memory for a piece of it.

    Raises:
        BracketError: a closing bracket has no opening one.
    """
    counter = counter or Brackets()
    found = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(text), _PIECE_BYTES):
        ends, closed = counter.ends(text[start : start + _PIECE_BYTES])
        found.append(ends + start)
        if closed is not None:
            return np.concatenate(found), start + closed
    return np.concatenate(found), None
