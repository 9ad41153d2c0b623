"""What the page Trace reads of trace files: each file's result is kept, and it is small; whole traces are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import streamlit as st

from tachoscope_analyzers.trace.analyses import overview
from tachoscope_analyzers.trace.analyses.overview import Row
from tachoscope_analyzers.trace.events.view import TraceView as TraceView
from tachoscope_analyzers.trace.reading import cache
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_core.errors import TachoscopeError
from tachoscope_explorer.sources.traces import view_of_file

Progress = Callable[[float], None]
"""Called with the share of the work that is done."""


@dataclass(frozen=True, slots=True)
class FileExtent:
    """What is known of a file before anything is worked out.

    Attributes:
        rank, world_size: as the trace tells them, else None. start_ns, end_ns: of its events; Unix time where the trace tells it,
            else on its own clock. base_ns: what is to be added to the trace's own times for that. digest: of the file's content.
    """

    path: Path
    rank: int | None
    world_size: int | None
    start_ns: int
    end_ns: int
    base_ns: int
    events: int
    device: str
    writer: str
    digest: str


@dataclass(frozen=True, slots=True)
class Ranks:
    """The files of a recording by rank, and those that cannot be read, with the reason. `doubtful`: why a rank may be wrong."""

    extents: dict[int, FileExtent]
    failed: dict[Path, TachoscopeError]
    doubtful: str = ""


@dataclass(frozen=True, slots=True)
class BinnedRows:
    """Rows of a trace over bins, and its steps: their begin in ns on the trace's clock, and their numbers; none where unknown."""

    rows: list[Row]
    step_start: Nanoseconds
    step_number: Nanoseconds


_NO_STEPS = np.zeros(0, dtype=np.int64)


def signature(path: Path) -> str:
    """Return what changes when a file does.

    Raises:
        TachoscopeError: there is no such file any more.
    """
    try:
        return cache.signature(path)
    except OSError as error:
        raise TachoscopeError(f"could not read {path}: {error.strerror or error}") from None


def ensure_local(path: Path) -> None:
    """See to it that a file that belongs to an object store is on this machine.

    Raises:
        TachoscopeError: it cannot be fetched.
    """
    if not path.exists():
        view_of_file(path)


@st.cache_data(max_entries=4096, show_spinner=False)
def _extent(path: str, signature: str) -> FileExtent:  # noqa: ARG001  # a file that was changed is read again
    trace = read(Path(path))
    meta, base = trace.meta, trace.meta.base_nanoseconds
    start, end = overview.extent(trace)
    device = meta.devices[0].name if meta.devices else ""
    return FileExtent(
        Path(path), meta.rank, meta.world_size, base + start, base + end, base, len(trace.events), device, meta.writer, meta.digest
    )


def extent(path: Path) -> FileExtent:
    """Return what is known of a file; a file that was never read is read now.

    Raises:
        TachoscopeError: it cannot be read, or is not a trace.
    """
    ensure_local(path)
    return _extent(str(path), signature(path))


def ranks(files: list[Path], progress: Progress) -> Ranks:
    """Return files by rank. Those that do not tell theirs, or tell that of another, get the free numbers."""
    found: list[FileExtent] = []
    failed: dict[Path, TachoscopeError] = {}
    for number, path in enumerate(files, start=1):
        try:
            found.append(extent(path))
        except TachoscopeError as error:
            failed[path] = error
        progress(number / len(files))
    known: dict[int, FileExtent] = {}
    rest = []
    for one in found:
        if one.rank is None or one.rank in known:
            rest.append(one)
        else:
            known[one.rank] = one
    twins = [one for one in rest if one.rank is not None]
    free = (number for number in range(len(found) + len(known)) if number not in known)
    numbered = known | dict(zip(free, rest, strict=False))
    doubtful = ""
    if twins:
        doubtful = f"{len(twins)} of {len(files)} files are of a rank that another file is of, and have free numbers."
    elif rest and len(files) > 1:
        doubtful = f"{len(rest)} of {len(files)} files do not tell their rank, and are numbered by name."
    return Ranks(dict(sorted(numbered.items())), failed, doubtful)


@st.cache_data(max_entries=2048, show_spinner=False)
def _cached_rows(path: str, signature: str, start: int, end: int, bins: int) -> list[Row]:  # noqa: ARG001
    return overview.summary_rows(TraceView(read(Path(path))), overview.edges(start, end, bins))


def file_rows(one: FileExtent, start: int, end: int, bins: int) -> list[Row]:
    """Return a file's devices, or its host, over bins between two moments (ns on the trace's own clock)."""
    return _cached_rows(str(one.path), signature(one.path), start, end, bins)


@st.cache_data(max_entries=32, show_spinner=False)
def _tracks(path: str, signature: str, start: int, end: int, bins: int) -> BinnedRows:  # noqa: ARG001
    view, bounds = view_of_file(Path(path)), overview.edges(start, end, bins)
    rows = [*overview.summary_rows(view, bounds), *overview.streams(view, bounds), *overview.threads(view, bounds)]
    steps = view.device_steps
    if steps.source == "window":
        return BinnedRows(rows, _NO_STEPS, _NO_STEPS)
    return BinnedRows(rows, np.array(steps.start), np.array(steps.number))


def tracks(one: FileExtent, start: int, end: int, bins: int) -> BinnedRows:
    """Return a file's devices or host, streams and threads over bins between two moments (ns on the trace's own clock)."""
    return _tracks(str(one.path), signature(one.path), start, end, bins)
