"""The records that paths on the command line name: of a store, a job in it, a spool."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tachoscope_analyzers.records import life_records, load
from tachoscope_analyzers.records.judged_part import read_part
from tachoscope_analyzers.records.window import within
from tachoscope_cli.inputs.paths import is_job_folder, is_saved_report, is_store, job_folder
from tachoscope_cli.inputs.time_window import TimeWindow
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report
from tachoscope_core.report.report import load as load_report
from tachoscope_core.storage import spool
from tachoscope_core.storage.compacted import all_segments, compacted_sets
from tachoscope_core.storage.store import Store

_NEWEST = 3
_Result = TypeVar("_Result")


def newest_job(store: Store) -> str:
    """Return the job whose records were written last.

    Raises:
        TachoscopeError: the store holds no job.
    """
    times = store.job_times()
    if not times:
        raise TachoscopeError(f"store {store.url} is empty", fix="run something first: tachoscope run -- python train.py")
    return max(times, key=times.__getitem__)


def saved_report(paths: list[str]) -> Report | None:
    """Return the saved report that the only path names; None: it names something else."""
    return load_report(Path(paths[0])) if is_saved_report(paths) else None


def name_of(paths: list[str]) -> str:
    """Return what to call what the paths hold: the name of their folder."""
    first = Path(paths[0]).resolve()
    return first.name if first.is_dir() else first.parent.name


def records_of(paths: list[str], job: str | None, window: TimeWindow | None = None) -> load.JobRecords:
    """Read the records that the paths name.

    Args:
        window: the part of a job to read, of a long one in a store its newest part; None: all that was ever recorded.

    Raises:
        TachoscopeError: a path does not exist, holds no records, or stores and spools are mixed.
    """
    place = stored_job(paths, job)
    if place is None:
        return _part_of(load.from_spool(map(Path, paths), job=job), window)
    with _hint_of_spool(place, job):
        return _stored(*place, window)


def with_life(
    paths: list[str], job: str, analysis: Callable[[life_records.LifeRecords], _Result], *, progress: life_records.Progress
) -> _Result:
    """Return what an analysis makes of all records of a job that the paths name, of a store in bounded memory.

    Args:
        progress: is told which part was read, 0 to 1.

    Raises:
        TachoscopeError: as `records_of`, or by the analysis.
    """
    place = stored_job(paths, job)
    if place is None:
        return analysis(life_records.of_job(load.from_spool(map(Path, paths), job=job)))
    with _hint_of_spool(place, job):
        return life_records.with_life(*place, analysis, progress=progress)


def stored_job(paths: list[str], job: str | None) -> tuple[Store, str] | None:
    """Return the store and job that the paths name; None: they are spools.

    Raises:
        TachoscopeError: they name a store and something else.
    """
    stores = [path for path in paths if is_store(path) or is_job_folder(path)]
    if not stores:
        return None
    if len(paths) > 1:
        raise TachoscopeError(f"cannot analyze {stores[0]} together with other paths", fix="one store at a time")
    folder = job_folder(stores[0])
    if folder is not None:
        return Store(str(folder.parent.parent)), folder.name
    store = Store(stores[0])
    return store, job or _newest_with_work(store)


@contextlib.contextmanager
def _hint_of_spool(place: tuple[Store, str], job: str | None) -> Iterator[None]:
    """Raise a more helpful error if the spool has the job that the store lacks."""
    try:
        yield
    except TachoscopeError:
        if job == place[1]:
            _look_into_spool(place[0], job)
        raise


def _stored(store: Store, job: str, window: TimeWindow | None) -> load.JobRecords:
    if window is None:
        return load.from_store(store, job)
    return read_part(store, job, start=window.start, end=window.end, last=window.last)


def _part_of(found: load.JobRecords, window: TimeWindow | None) -> load.JobRecords:
    if window is None or window == TimeWindow():
        return found
    end = found.steps.last_time() + 1.0 if window.end is None else window.end
    start = end - window.last if window.last is not None else window.start or 0.0
    return within(found, start, end)


def _newest_with_work(store: Store) -> str:
    """Return the job written last; one with a launcher only gives way to another of the newest few."""
    newest = newest_job(store)
    times = store.job_times()
    for job in sorted(times, key=times.__getitem__, reverse=True)[:_NEWEST]:
        if any(one.holds.steps for one in compacted_sets(store, job)):
            return job
        found = load.from_store(store, job, ends_only=True)
        if load.serving_job(found) or found.steps or any(start.rank >= 0 for start in found.starts):
            return job
    return newest


def _look_into_spool(store: Store, job: str) -> None:
    """Raise an error that shows how to analyze a job whose records are still in the spool."""
    root = spool.default_root()
    try:
        if all_segments(store, job):
            return
        load.from_spool([root], job=job)
    except (TachoscopeError, OSError):
        return
    raise TachoscopeError(
        f"store {store.url} has no records of job {job!r}, but the spool has some that are not shipped yet",
        fix=f"tachoscope analyze {root} --job {job}, or for its whole life tachoscope goodput {job} {root}",
    )
