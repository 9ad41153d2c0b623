"""What a test leaves in its process; what earlier tests left may end while it runs, so only what is new counts."""

from __future__ import annotations

import os
import threading
import time


class LeftBehind:
    """Threads and open files that were not there when this was made; both may take a moment to go."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._files = _open_files()

    def threads(self, name: str | None = None) -> list[threading.Thread]:
        """Return threads that began since, or those of one name."""
        return [thread for thread in threading.enumerate() if thread not in self._threads and name in {None, thread.name}]

    def files(self) -> set[tuple[str, str]]:
        """Return descriptor and target of what was opened since; a socket's target is its own for ever."""
        return _open_files() - self._files

    def assert_nothing(self, wait_seconds: float = 60.0) -> None:
        """Fail if threads or files are still there after the wait."""
        end = time.monotonic() + wait_seconds
        while (self.threads() or self.files()) and time.monotonic() < end:
            time.sleep(0.01)
        assert not self.threads()
        assert not self.files()


def _open_files() -> set[tuple[str, str]]:
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.add((descriptor, os.readlink(f"/proc/self/fd/{descriptor}")))
        except FileNotFoundError:  # the listing's own, or closed by another thread meanwhile
            continue
    return found
