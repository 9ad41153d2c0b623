"""From each failure to the first step that had not been done before, in its parts; and what came of notices."""

from __future__ import annotations

from collections.abc import Sequence

from tachoscope_analyzers.attempts.endings import AttemptEnding
from tachoscope_analyzers.attempts.processes import Clock
from tachoscope_analyzers.attempts.step_numbering import Run
from tachoscope_analyzers.life.ledger import RunBooks
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.report import job_life


def recoveries(books: Sequence[RunBooks], endings: Sequence[AttemptEnding], clock: Clock) -> list[job_life.Recovery]:
    """Return the recoveries in order of time: those of attempts that failed, and hangs that passed by themselves."""
    found = [_recovery(index, books, ending, clock) for index, ending in enumerate(endings) if ending.failed]
    for book in books:
        found += [
            job_life.Recovery(
                attempt=book.run.attempt,
                kind="hung",
                rank=hang.process.rank if hang.process else None,
                host=hang.process.host if hang.process else "",
                failed_at=clock.unix(hang.since),
                total_seconds=hang.until - hang.since,
            )
            for hang in book.hangs
        ]
    return sorted(found, key=lambda one: one.failed_at)


def _recovery(index: int, books: Sequence[RunBooks], ending: AttemptEnding, clock: Clock) -> job_life.Recovery:
    run = books[index].run
    failed_at = run.end if ending.failed_at is None else ending.failed_at
    after = [book for book in books[index + 1 :] if not run.ran_with(book.run)]
    reached = next((place for place, book in enumerate(after) if book.first_new is not None), None)
    parts: dict[str, float | None] = {}
    checkpoint = ""
    if after:
        parts = _parts(run, after[0])
        checkpoint = after[0].run.checkpoint
    first_new = after[reached].first_new if reached is not None else None
    again = after[: reached + 1] if reached is not None else after
    return job_life.Recovery(
        attempt=run.attempt,
        kind=ending.kind,
        rank=ending.process.rank if ending.process else None,
        host=ending.process.host if ending.process else "",
        failed_at=clock.unix(failed_at),
        detect_seconds=max(run.end - failed_at, 0.0),
        total_seconds=None if first_new is None else first_new - failed_at,
        lost_steps=sum(book.redone_steps for book in again),
        checkpoint=checkpoint,
        **parts,
    )


def _parts(run: Run, after: RunBooks) -> dict[str, float | None]:
    """Return the seconds from the end of an attempt's processes to the last step that the next one did again."""
    reading = max((sum(end - start for start, end in process.restores) for process in after.run.processes), default=0.0)
    forming = [process.rendezvous_seconds for process in after.run.processes if process.rendezvous_seconds is not None]
    parts: dict[str, float | None] = {
        "reschedule_seconds": max(after.run.start - run.end, 0.0),
        "rendezvous_seconds": max(forming, default=None),
        "restore_seconds": reading if any(process.restored for process in after.run.processes) else None,
    }
    if after.first_begin is not None:
        before = max(after.run.start, run.end) + max(forming, default=0.0) + _before(after, after.first_begin)
        parts["initialise_seconds"] = max(after.first_begin - before, 0.0)
        again_until = after.first_begin if after.redone_until is None else after.redone_until
        parts["redo_seconds"] = max(again_until - after.first_begin, 0.0)
    return parts


def _before(book: RunBooks, first_begin: float) -> float:
    """Return the seconds of reading checkpoints before the first step, on the rank that read longest."""
    return max(sum(max(min(end, first_begin) - start, 0.0) for start, end in process.restores) for process in book.run.processes)


def notices(job: JobRecords, runs: Sequence[Run], endings: Sequence[AttemptEnding], clock: Clock) -> list[job_life.Notice]:
    """Return the notices, each source and host once an attempt, with what came of them."""
    found: dict[tuple[str, str, int], job_life.Notice] = {}
    for row in sorted(job.notices, key=lambda row: row.time):
        at = clock.unix_seconds(row)
        index = next((i for i, run in enumerate(runs) if run.start <= at <= run.end + 1.0), None)
        key = (row.source, row.host, -1 if index is None else index)
        if key in found:
            continue
        saved = ended = None
        if index is not None:
            on_host = [p for p in runs[index].processes if p.host == row.host] or runs[index].processes
            # Whichever rank writes it: an emergency checkpoint is the whole job's.
            saves = [
                clock.unix_seconds(save)
                for p in runs[index].processes
                for save in p.saves
                if clock.unix_seconds(save) - save.blocking_seconds >= at
            ]
            saved = min(saves) - at if saves else None
            ended = max(max(p.end for p in on_host) - at, 0.0) if endings[index].kind != "running" else None
        found[key] = job_life.Notice(
            source=row.source,
            host=row.host,
            time=row.time,
            deadline=row.deadline,
            saved_seconds=saved,
            ended_seconds=ended,
            in_time=_in_time(saved, ended, row.deadline - row.time if row.deadline else None),
        )
    return list(found.values())


def _in_time(saved: float | None, ended: float | None, allowed: float | None) -> bool | None:
    if saved is None:
        return None if ended is None else False
    return allowed is None or saved <= allowed
