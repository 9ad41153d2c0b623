"""Attempts of a job that are alive in this machine's spool while another one starts: the same name used twice at once.

The runs that are the nodes or ranks of one attempt are told from another attempt by their time, as everywhere: what may be a part
of an attempt is one if it begins less than `attempt_number.JOIN_SECONDS` after the others.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tachoscope.process import identity
from tachoscope_cli.launcher.attempt_number import JOIN_SECONDS
from tachoscope_core.records import records
from tachoscope_core.storage import spool
from tachoscope_core.storage.shard_quarantine import DIRECTORY
from tachoscope_node.spool.owners import AGENT_DIRECTORY


class _FirstRecord(msgspec.Struct):
    """The part of a process's first record that says what it is of."""

    job: records.Name
    attempt: records.Count
    host: records.Name
    time: records.UnixSeconds
    pid: records.Count = 0


_first = msgspec.json.Decoder(_FirstRecord)


@dataclass(frozen=True, slots=True)
class LiveProcesses:
    """Processes of one run that are alive.

    Attributes:
        attempt: the newest of any. host, began, pid: of the first, which is `tachoscope run` itself unless it was killed; `began`
            in Unix seconds; `pid` 0: neither is known.
    """

    attempt: int
    host: str
    began: float
    pid: int


def alive(root: Path, job: str, environ: Mapping[str, str]) -> list[LiveProcesses]:
    """Return the runs of a job by this user that are alive on this machine, but for the one that this process is within."""
    within = environ.get(identity.RUN_DIR)
    found = []
    for directory in _directories(root):
        if within and Path(within).name == directory.name:
            continue
        firsts = sorted(_of_live(directory, job), key=lambda one: one.time)
        if firsts:
            newest = max(one.attempt for one in firsts)
            found.append(LiveProcesses(newest, firsts[0].host, firsts[0].time, firsts[0].pid))
    return sorted(found, key=lambda one: one.began)


def others(found: list[LiveProcesses], environ: Mapping[str, str], *, host: str, joins: bool, now: float) -> list[LiveProcesses]:
    """Return those that are another attempt than the run that starts, not other nodes or ranks of its own.

    Args:
        joins: the run is that of one node of several. now: Unix seconds.
    """
    if not joins and not _is_one_rank(environ):
        return found
    return [one for one in found if one.host == host and one.began < now - JOIN_SECONDS]


def warning(job: str, found: list[LiveProcesses], *, now: float) -> str:
    """Return the line that says that a job's name is in use."""
    first = found[0]
    who = f" (process {first.pid}, begun {max(now - first.began, 0.0):.0f} s ago)" if first.pid else ""
    return (
        f"another attempt of job {job!r} runs on this machine{who}: the two count as attempts of one job;"
        " if they are two jobs, start one of them with another --job"
    )


def _is_one_rank(environ: Mapping[str, str]) -> bool:
    place = identity.place(environ)
    return place is not None and place.world_size > 1


def _directories(root: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.name == DIRECTORY or entry.name.startswith(AGENT_DIRECTORY):
                continue
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    yield Path(entry.path)


def _of_live(directory: Path, job: str) -> Iterator[_FirstRecord]:
    """Yield the first records of the segments of a job that live processes write."""
    with contextlib.suppress(OSError):
        for path in spool.segments(directory):
            with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                with path.open("rb") as file:
                    first = _first.decode(file.readline(records.MAX_LINE_BYTES))
                if first.job == job and spool.is_locked(path):
                    yield first
