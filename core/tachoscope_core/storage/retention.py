"""Retention: finds objects that are older, or take more space, than allowed, and removes them.

Records are removed by whole jobs, because reports on incomplete jobs would be wrong. Jobs with a `jobs/<job>/hold.json` are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import check_job_name
from tachoscope_core.storage.store import Store, written_time
from tachoscope_core.storage.traces import StoredTrace, traces

_HOLD = "hold.json"


class Hold(msgspec.Struct, frozen=True):
    """Why a job is kept, since when, in Unix seconds."""

    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class Disposable:
    """Objects that belong together and are removed together, such as the records of a job.

    Attributes:
        what: `records`, `metrics`, `traces` or `nodes`. name: of the job, day, recording or node.
        last: Unix seconds at which something of it was last written.
    """

    what: str
    name: str
    last: float
    bytes: int
    paths: tuple[str, ...]


def old_records(store: Store, *, before: float) -> Iterator[Disposable]:
    """Yield the jobs without writes since `before`, Unix seconds, that are not held, without their traces."""
    for job, last in sorted(store.job_times().items()):
        root = f"{store.root}/jobs/{job}"
        if 0.0 < last < before and hold_of(store, job) is None:
            entries = {path: entry for path, entry in store.find(f"jobs/{job}").items() if not path.startswith(f"{root}/traces/")}
            yield replace(_disposable("records", job, entries, last=last), paths=_in_order_of_removal(root, entries))


def _in_order_of_removal(root: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths of a job so that what is left after each removal is found by the next run, and still has its owner.

    Requests alone are not a job (see `Store.job_times`), so they go first. Without its owner the rest would belong to any user.
    """
    return tuple(sorted(paths, key=lambda path: (path == f"{root}/owner.json", not path.startswith(f"{root}/requests/"), path)))


def old_samples(store: Store, *, before: float) -> Iterator[Disposable]:
    """Yield the days of metric samples that ended before a Unix time."""
    first_kept = datetime.fromtimestamp(before, UTC).date().isoformat()
    by_day: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for path, entry in store.find("metrics").items():
        day = next((part[5:] for part in path.split("/") if part.startswith("date=")), first_kept)
        if day < first_kept:
            by_day[day][path] = entry
    return (_disposable("metrics", day, entries) for day, entries in sorted(by_day.items()))


def oldest_traces(store: Store, *, most_bytes: int) -> Iterator[Disposable]:
    """Yield the oldest recordings of jobs that are not held, until the others take at most `most_bytes`."""
    by_recording: dict[tuple[str, str], list[StoredTrace]] = defaultdict(list)
    for job in store.jobs():
        for trace in traces(store, job):
            by_recording[job, trace.recording].append(trace)
    every = [
        Disposable(
            "traces",
            f"{job}/{recording}",
            max(trace.written for trace in files),
            sum(trace.bytes for trace in files),
            tuple(trace.path for trace in files),
        )
        for (job, recording), files in by_recording.items()
    ]
    over = sum(one.bytes for one in every) - most_bytes
    for one in sorted(every, key=lambda one: (one.last, one.name)):
        if over <= 0:
            return
        if hold_of(store, one.name.partition("/")[0]) is None:
            over -= one.bytes
            yield one


def gone_nodes(store: Store, *, before: float) -> Iterator[Disposable]:
    """Yield the status objects of nodes that were last written before a Unix time."""
    for path, entry in store.find("nodes").items():
        if 0.0 < written_time(entry) < before:
            yield _disposable("nodes", path.rpartition("/")[2].removesuffix(".json.gz"), {path: entry})


def remove(store: Store, things: Iterable[Disposable]) -> None:
    """Remove objects. If it is interrupted, the next run removes the rest.

    Raises:
        TachoscopeError: an object cannot be removed.
    """
    for one in things:
        store.remove(one.paths)
        if one.what in ("records", "traces"):
            store.remove_empty_folders(one.name.partition("/")[0])


def hold(store: Store, job: str, reason: str, now: float) -> None:
    """Keep a job from being removed.

    Raises:
        TachoscopeError: the store has no such job, or cannot be written.
    """
    if check_job_name(job) not in store.jobs():
        raise TachoscopeError(f"store {store.url} has no records of job {job!r}", fix="tachoscope store ls")
    store.write_hold(job, msgspec.json.encode(Hold(reason, now)))


def release(store: Store, job: str) -> None:
    """End the hold of a job.

    Raises:
        TachoscopeError: it is not held.
    """
    if hold_of(store, job) is None:
        raise TachoscopeError(f"job {job!r} is not held in store {store.url}")
    store.remove([_hold_path(store, job)])


def hold_of(store: Store, job: str) -> Hold | None:
    """Return the hold of a job, or None. An invalid hold counts as a hold without a reason.

    Raises:
        TachoscopeError: it cannot be known.
    """
    path = _hold_path(store, job)
    try:
        return msgspec.json.decode(store.files.cat_file(path), type=Hold)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError:
        return Hold("", 0.0)
    except Exception as error:  # each object store has its own; a job whose hold is unknown is not removed
        raise TachoscopeError(f"could not read {path} in store {store.url}: {error}") from None


def _hold_path(store: Store, job: str) -> str:
    return f"{store.root}/jobs/{check_job_name(job)}/{_HOLD}"


def _disposable(what: str, name: str, entries: dict[str, dict[str, Any]], last: float | None = None) -> Disposable:
    last = max(map(written_time, entries.values()), default=0.0) if last is None else last
    return Disposable(what, name, last, sum(int(entry.get("size") or 0) for entry in entries.values()), tuple(sorted(entries)))
