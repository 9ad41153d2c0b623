"""What is known of the live jobs, in a file: written at each tick before it is shown, read at a restart.

Counters therefore go on where they were, and a record that was counted is not counted again.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tachoscope_core.errors import not_written
from tachoscope_core.owner import Owner
from tachoscope_node.jobs.attempt_outcome import Finished
from tachoscope_node.jobs.registry import Job
from tachoscope_node.services.state import Service
from tachoscope_node.spool.segment import Address, Segment


class Position(msgspec.Struct):
    """How far a segment was counted."""

    inode: int
    applied: int
    address: Address | None = None


class AgentState(msgspec.Struct):
    """The file's content; monotonic times in it hold for one boot of the host."""

    boot: str
    jobs: dict[str, Job] = {}
    services: dict[str, Service] = {}
    positions: dict[str, Position] = {}
    owners: dict[str, Owner] = {}
    finished: Finished = msgspec.field(default_factory=Finished)


def load(path: Path, boot: str) -> AgentState:
    """Return what was saved in this boot; nothing, where the file is absent, broken or older."""
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=AgentState)
    except (OSError, msgspec.DecodeError):
        return AgentState(boot)
    return saved if saved.boot == boot else AgentState(boot)


def save(path: Path, saved: AgentState) -> None:
    """Replace the file.

    Raises:
        TachoscopeError: it cannot be written; the one before stays.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        temporary.write_bytes(msgspec.json.encode(saved))
        os.replace(temporary, path)
    except OSError as error:
        raise not_written(path, error) from None


def position_key(segment: Segment) -> str:
    """Return `directory/name`, the segment's key in `positions`."""
    return "/".join(segment.key)
