"""Which record objects of a job were written lately, without a look at all that it ever wrote.

Only the folders of the days in question are listed. An object's day is that of its records, so one is listed more than the window
asks for: an agent may ship late.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import check_job_name
from tachoscope_core.storage.store import KEY, Store, StoredSegment, written_time

_FIRST = f"{0:016d}.jsonl.gz"
_TAIL = len(_FIRST) + 1
"""What follows the writer and the attempt in a key."""


@dataclass(frozen=True, slots=True)
class RecentSegments:
    """Objects of records that were written lately, and of the writers whose first one is older, that one: it says who they are."""

    recent: list[StoredSegment]
    firsts: list[StoredSegment]


def recent_segments(store: Store, job: str, *, since: float, until: float, over: float | None = None) -> RecentSegments:
    """Return the objects written from `since` on.

    Args:
        since, until: Unix seconds, `until` is now.
        over: seconds up to the time until which all writers wrote: older objects are left out. What is returned then changes only
            when an object is written, or when all objects of a writer are older than `since`.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    root = f"{store.root}/jobs/{check_job_name(job)}/records"
    days = _days(since, until)
    try:
        return _local(root, days, since, over) if store.local else _remote(store, root, days, since, over)
    except Exception as error:  # each object store has its own
        raise TachoscopeError(f"could not list {root} in store {store.url}: {error}") from None


def _days(since: float, until: float) -> list[str]:
    """Return the days from one before the window to one after it, since clocks differ."""
    first, last = (datetime.fromtimestamp(max(time, 0.0), UTC).date() for time in (since, until))
    return [f"date={first + timedelta(days=number)}" for number in range(-1, (last - first).days + 2)]


def _last_seconds(found: dict[str, float], over: float | None) -> dict[str, float]:
    """Return the objects of each writer's last `over` seconds, None: all; given are the times of writing."""
    if over is None:
        return found
    newest: dict[str, float] = {}
    for path, time in found.items():
        writer = path[:-_TAIL].rpartition("/")[2]
        newest[writer] = max(time, newest.get(writer, 0.0))
    first = min(newest.values(), default=0.0) - over
    return {path: time for path, time in found.items() if time > first}


def _local(root: str, days: list[str], since: float, over: float | None) -> RecentSegments:
    found: dict[str, float] = {}
    for day in days:
        for host in _folders(f"{root}/{day}"):
            if os.stat(host).st_mtime >= since:  # else no object came since
                found.update(_newest(host, since))
    found = _last_seconds(found, over)
    firsts = (next(filter(os.path.exists, paths), None) for paths in _first_paths(found, lambda: _folders(root)))
    return RecentSegments(list(_segments(found)), list(_segments(filter(None, firsts))))


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _newest(host: str, since: float) -> Iterator[tuple[str, float]]:
    """Yield a host's objects written since then, with times: each writer from its last back."""
    by_writer: dict[str, list[str]] = defaultdict(list)
    for name in os.listdir(host):
        by_writer[name[:-_TAIL]].append(name)
    for names in by_writer.values():
        for name in sorted(names, reverse=True):
            path = f"{host}/{name}"
            time = os.stat(path).st_mtime
            if time < since:
                break
            yield path, time


def _remote(store: Store, root: str, days: list[str], since: float, over: float | None) -> RecentSegments:
    """Return what `_local` does by few requests: what is not there is not asked for, and what was listed is known."""
    folders = store.folders(root)
    listed = [folder for folder in folders if folder.rpartition("/")[2] in days]
    times: dict[str, float] = {}
    for objects in store.each(lambda folder: store.files.find(folder, detail=True), listed):
        times |= {path: written_time(entry) for path, entry in objects.items()}
    found = _last_seconds({path: time for path, time in times.items() if time >= since}, over)

    def exists(path: str) -> bool:
        return path in times if path.startswith(tuple(f"{folder}/" for folder in listed)) else _is_there(store, path)

    wanted = _first_paths(found, lambda: folders)
    firsts = store.each(lambda paths: next(filter(exists, paths), None), wanted)
    return RecentSegments(list(_segments(found)), list(_segments(filter(None, firsts))))


_absent: dict[tuple[str, str], None] = {}
"""First objects, by store, that days do not have: a writer's others come after it, so that it never comes."""
_MOST_ABSENT = 200_000


def _is_there(store: Store, path: str) -> bool:
    if (store.url, path) in _absent:
        return False
    there = bool(store.files.exists(path))
    if not there:
        if len(_absent) >= _MOST_ABSENT:
            _absent.clear()
        _absent[store.url, path] = None
    return there


def _first_paths(found: Iterable[str], days: Callable[[], list[str]]) -> list[list[str]]:
    """Return where the first object of each found writer may be, unless it was found: in the folders of `days`, newest first."""
    writers = {(path.split("/")[-2], path.rsplit("/", 1)[-1][:-_TAIL]) for path in found}
    writers -= {(path.split("/")[-2], path.rsplit("/", 1)[-1][:-_TAIL]) for path in found if path.endswith(_FIRST)}
    folders = sorted(days(), reverse=True) if writers else []
    return [[f"{day}/{host}/{writer}-{_FIRST}" for day in folders] for host, writer in sorted(writers)]


def _segments(paths: Iterable[str]) -> Iterator[StoredSegment]:
    for path in sorted(paths):
        match = KEY.fullmatch(path.rsplit("/", 1)[-1])
        if match:
            host = path.split("/")[-2].removeprefix("host=")
            yield StoredSegment(path, host, match["writer"], int(match["attempt"]), int(match["offset"]))
