"""A file system whose writes can be made slow: ext4 on a loop device, mounted with `sync`, under a limit of the blkio cgroup.

A write returns when the device has the bytes, so the limit is felt in `torch.save`. Needs root and version 1 of the blkio cgroup.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LIMIT = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
_SIZE = "512M"


@dataclass(frozen=True, slots=True)
class Storage:
    """The mounted file system. device: its numbers, `major:minor`."""

    folder: Path
    device: str

    def limit(self, bytes_per_second: int) -> None:
        """Let writes take at least so long; 0: as long as they do."""
        _LIMIT.write_text(f"{self.device} {bytes_per_second}")


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[Storage]:
    """Mount one in a folder, which is made, with its image beside it; it ends with the block."""
    if not _LIMIT.exists():
        raise RuntimeError(f"{_LIMIT} does not exist: slow storage needs root and version 1 of the blkio cgroup")
    image = folder.with_suffix(".image")
    folder.mkdir()
    _run("truncate", "-s", _SIZE, str(image))
    _run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image))
    loop = _run("losetup", "-f", "--show", str(image)).strip()
    try:
        _run("mount", "-o", "sync,noatime", loop, str(folder))
        storage = Storage(folder, Path(f"/sys/block/{Path(loop).name}/dev").read_text().strip())
        try:
            yield storage
        finally:
            storage.limit(0)
            _run("umount", "--lazy", str(folder))
    finally:
        _run("losetup", "-d", loop)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
