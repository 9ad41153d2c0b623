"""Takes the checksums of a checkpoint right after it was saved, while its files are still in the page cache.

A process of the lowest priority reads them back: a checksum taken later would vouch for what the storage made of them. A file that
was written to or replaced meanwhile has none, and the checkpoint then no manifest.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tachoscope.checkpoints import checksum_process
from tachoscope.checkpoints.save_nesting import Version, WrittenFile
from tachoscope_core.checkpoints.checksums import UnsteadyFileError, version
from tachoscope_core.records.records import ShardSum

SWITCH = "TACHOSCOPE_MANIFESTS"
MAX_WAITING = 8
"""Checkpoints that wait for their checksums; where saves come faster than checksums, the oldest goes without."""
OPEN_SECONDS = 60.0
"""A file that was saved through an open file object is waited for so long to be closed."""
_LOOK_SECONDS = 0.1

Emit = Callable[[int, str, list[ShardSum], float], None]


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A complete checkpoint, with the files that this rank wrote."""

    step: int
    reference: str
    files: list[WrittenFile]


class Manifests:
    """A queue of checkpoints, and its thread, which starts with the first.

    Args:
        emit: writes a manifest: step, reference, the files' checksums, and the seconds that taking these took.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._on = os.environ.get(SWITCH, "1") != "0"
        self._waiting: deque[SavedCheckpoint] = deque(maxlen=MAX_WAITING)
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def put(self, saved: SavedCheckpoint) -> None:
        """Take the checksums of this checkpoint, and not those of an older one of the same reference that still waits."""
        if not self._on or self._closing or not saved.files:
            return
        with self._changed:
            same = [other for other in self._waiting if other.reference == saved.reference]
            for other in same:
                self._waiting.remove(other)
            self._waiting.append(saved)
            self._changed.notify()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="tachoscope-manifests", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter ends
                self._on = False
                return
            self._thread = thread

    def close(self, wait_seconds: float) -> None:
        """End within `wait_seconds`. Manifests that are not finished by then are dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(wait_seconds)
            self._stop.set()
            process = self._process
            if process is not None:
                process.kill()
            self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting or self._stop.is_set():
                    return
                saved = self._waiting.popleft()
            begin = time.monotonic()
            try:
                shards = self._checksums(saved)
            except (OSError, ValueError, msgspec.MsgspecError):  # replaced by the next save, or removed: nothing to vouch for
                continue
            if shards:
                self._emit(saved.step, saved.reference, shards, time.monotonic() - begin)

    def _checksums(self, saved: SavedCheckpoint) -> list[ShardSum]:
        """Return the checksums of the files below the reference, by path; OSError if one changed or cannot be read."""
        files = {file.path: file for file in saved.files if _is_part(file.path, saved.reference)}
        before = {}
        for path, file in sorted(files.items()):
            self._wait_until_closed(file)
            before[path] = file.version or version(os.stat(path))
            _must_be(path, before[path])
        if not before:
            return []
        with checksum_process.start() as self._process:
            if self._stop.is_set():
                self._process.kill()
            summed = checksum_process.request_checksums(self._process, list(before))
        for path, state in before.items():
            _must_be(path, state)
        return [
            msgspec.structs.replace(one, path="" if path == saved.reference else os.path.relpath(path, saved.reference))
            for path, one in zip(before, summed, strict=True)
        ]

    def _wait_until_closed(self, file: WrittenFile) -> None:
        """Wait for a file object that may still hold a part of the file in its buffer."""
        deadline = time.monotonic() + OPEN_SECONDS
        while file.file is not None and not getattr(file.file(), "closed", True):
            if time.monotonic() > deadline or self._stop.wait(_LOOK_SECONDS):
                raise UnsteadyFileError(file.path)


def _is_part(path: str, reference: str) -> bool:
    return path == reference or path.startswith(reference + os.sep)


def _must_be(path: str, state: Version) -> None:
    if version(os.stat(path)) != state:
        raise UnsteadyFileError(f"{path} was written to or replaced after it was saved")
