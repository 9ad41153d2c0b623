"""Checkpoints for the agent's tests: real files, and the records that a training process would write of them."""

from __future__ import annotations

import os
from pathlib import Path

from spool_writing import Process
from tachoscope_core.checkpoints.checksums import open_file_checksum
from tachoscope_core.checkpoints.verification import open_regular
from tachoscope_core.records import records
from tachoscope_core.records.records import ShardSum


def summed(file: Path) -> ShardSum:
    """Return size and checksum of a file."""
    with open_regular(str(file)) as opened:
        found = open_file_checksum(opened)
    assert found is not None
    return found


def save(process: Process, file: Path, content: bytes, *, step: int = 1, manifest: bool = True) -> None:
    """Write a checkpoint of one file, and its records."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    process.write(records.CheckpointSaved, step=step, blocking_seconds=0.1, bytes=len(content), reference=str(file))
    if manifest:
        process.write(records.CheckpointManifest, step=step, reference=str(file), shards=[summed(file)], seconds=0.1)


def flip(file: Path, place: int = 0) -> None:
    """Flip one bit, as a fault of the storage does: the times of the file stay."""
    status = file.stat()
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
