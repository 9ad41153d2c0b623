"""Which calls make one checkpoint: a framework's save holds several saves of torch."""

from __future__ import annotations

import time


class Saves:
    """Counts nested saves of the training thread."""

    def __init__(self) -> None:
        self._open = 0
        self._wrote = 0
        self._began = 0.0
        self.bytes = 0
        """Bytes of the last checkpoint, as far as they are known."""

    def begin(self) -> None:
        """A call begins to save."""
        if not self._open:
            self._began = time.monotonic()
            self._wrote = self.bytes = 0
        self._open += 1

    def end(self, size_bytes: int | None, *, writes: bool) -> float | None:
        """The call ended: return the seconds of the checkpoint if it was the outermost call and something was written.

        Args:
            size_bytes: what this call itself wrote; None if it wrote nothing, or only by calls within it.
            writes: this rank is one that writes, whether or not a write was seen.
        """
        self._open -= 1
        if size_bytes is not None:
            self._wrote += 1
            self.bytes += size_bytes
        return time.monotonic() - self._began if not self._open and (self._wrote or writes) else None
