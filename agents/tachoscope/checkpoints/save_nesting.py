"""Which calls make one checkpoint, saved or read: a framework's holds several of torch, and the outermost names it."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tachoscope.checkpoints.checkpoint_name import reference_of
from tachoscope_core.checkpoints.checksums import version

Version = tuple[int, int, int, int]


@dataclass(slots=True)
class WrittenFile:
    """A file of a checkpoint, and its state when it was whole.

    Attributes:
        version: None: the file is still open, in `file` (a weak reference), and has none yet.
    """

    path: str
    version: Version | None = None
    file: Any = None


@dataclass(slots=True)
class CheckpointCall:
    """One checkpoint that is saved or read, with all calls within it.

    Attributes:
        reference: what the outermost call that names one names. files: that this process wrote. bytes: written or read.
        took_part: calls within it that wrote or read something.
        completion: done when it is whole, if that is later than the outermost call's return.
        distributed: folder of a distributed checkpoint, and the number of this rank in its files' names.
    """

    reference: str = ""
    files: list[WrittenFile] = field(default_factory=list)
    bytes: int = 0
    took_part: int = 0
    completion: Future[Any] | None = None
    distributed: tuple[str, int] | None = None
    after_notice: bool = False
    blocking_seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)


class Calls:
    """The nested save or load calls of the training thread."""

    def __init__(self) -> None:
        self._open = 0
        self.current = CheckpointCall()

    @property
    def depth(self) -> int:
        """How many calls are open, one within the other."""
        return self._open

    def begin(self) -> CheckpointCall:
        if not self._open:
            self.current = CheckpointCall()
        self._open += 1
        return self.current

    def end(self) -> CheckpointCall | None:
        """The call ended: return the checkpoint if it was the outermost."""
        self._open -= 1
        if self._open:
            return None
        self.current.blocking_seconds = time.monotonic() - self.current.began
        return self.current


def size_of(target: Any) -> int:
    """Return the bytes written to or read from a file object or path so far, 0 where that cannot be known."""
    try:
        return int(target.tell()) if hasattr(target, "tell") else os.stat(target).st_size
    except (OSError, TypeError, ValueError, AttributeError):
        return 0


def written(target: Any) -> WrittenFile | None:
    """Return the file behind a path or file object that was written to, None where there is none to be read again."""
    path = reference_of(target)
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    if hasattr(target, "write"):
        try:
            return WrittenFile(path, None, weakref.ref(target))
        except TypeError:
            return None
    return WrittenFile(path, version(state))


def distributed_files(folder: str, rank: int) -> list[WrittenFile]:
    """Return the files that a rank wrote of a `torch.distributed.checkpoint` in a folder; rank 0 writes the metadata as well.

    They are named `__<rank>_<number>.distcp`, numbered from 0. Found by their names, since a folder of thousands of ranks is long.
    """
    numbered = (written(os.path.join(folder, f"__{rank}_{number}.distcp")) for number in itertools.count())
    files = list(itertools.takewhile(lambda file: file is not None, numbered))
    files += [written(os.path.join(folder, name)) for name in (f"__{rank}.metadata", ".metadata")[: 2 if rank == 0 else 1]]
    return [file for file in files if file is not None]


def json_files(folder: str) -> list[WrittenFile]:
    """Return the files that a framework wrote with `json` beside the tensors: without them its checkpoint cannot be read."""
    try:
        with os.scandir(folder) as entries:
            paths = [entry.path for entry in entries if entry.name.endswith(".json") and entry.is_file()]
    except OSError:  # a file, or nothing of this host
        return []
    return [file for path in paths if (file := written(path)) is not None]
