"""Files that are read again when they change, without a signal: certificates and tokens are renewed under a running agent."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LOOK_SECONDS = 10.0


class WatchedFiles:
    """Files as they were when this was made."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._times = {path: _changed_at(path) for path in paths}
        self._next_look = 0.0

    def changed(self, now: float) -> bool:
        """Return whether a file changed; checks every ten seconds, `now` is monotonic."""
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_SECONDS
        return any(_changed_at(path) not in {at, None} for path, at in self._times.items())

    def as_now(self) -> WatchedFiles:
        return WatchedFiles(self._times)


def _changed_at(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # in the middle of being replaced
        return None
