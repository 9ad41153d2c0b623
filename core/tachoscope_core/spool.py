"""The spool: where processes append records and from where they are shipped.

Layout: `<root>/<run>/<writer>-<number>.jsonl`, one writer a process. A live writer holds a shared lock on each of its
segments, and `tachoscope run` holds `<run>/owner.lock`, so that what a dead run left behind can be told from what is in use.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

SEGMENT_SUFFIX = ".jsonl"
OWNER_LOCK = "owner.lock"


def default_root() -> Path:
    """Return `$TACHOSCOPE_SPOOL`, else a tmpfs, so that an append never waits for a disk."""
    configured = os.environ.get("TACHOSCOPE_SPOOL")
    if configured:
        return Path(configured)
    shared_memory = Path("/dev/shm")  # noqa: S108  # a directory of our own is made inside it, without following links
    return (shared_memory if shared_memory.is_dir() else Path(tempfile.gettempdir())) / "tachoscope"


def segment_name(writer: str, number: int) -> str:
    """Return the file name of a writer's segment; names of one writer sort in the order of writing."""
    return f"{writer}-{number:06d}{SEGMENT_SUFFIX}"


def writer_and_number(path: Path) -> tuple[str, int]:
    """Return what `segment_name` put together.

    Raises:
        ValueError: not the name of a segment.
    """
    writer, _, number = path.name.removesuffix(SEGMENT_SUFFIX).rpartition("-")
    if not writer:
        raise ValueError(f"{path.name} is not a segment name")
    return writer, int(number)


def segments(directory: Path) -> Iterator[Path]:
    """Yield all segments below `directory`, ordered by name; links are not followed."""
    for path in sorted(directory.rglob(f"*{SEGMENT_SUFFIX}")):
        if not path.is_symlink() and path.is_file():
            yield path


def is_locked(path: Path) -> bool:
    """Say whether a live process holds the lock on `path`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
