"""What is unusual about an attempt, for its report: how it failed, and what its records do not show."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from tachoscope_analyzers.attempts.allocations import job_allocations
from tachoscope_analyzers.attempts.endings import AttemptEnding, ending, launch_of, with_hang_until
from tachoscope_analyzers.attempts.process_ends import ProcessEnds
from tachoscope_analyzers.attempts.processes import Clock
from tachoscope_analyzers.attempts.step_numbering import Run
from tachoscope_analyzers.records.facts import facts
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.jobs import notes as job_notes
from tachoscope_core.records.records import LAUNCHER_RANK
from tachoscope_core.report.failures import Failure
from tachoscope_core.report.job_life import NOBODYS
from tachoscope_core.report.report import STEPS_BEFORE, QualityNote

_MOST_PAIRS = 3


def notes(ends: ProcessEnds, attempt: int, root: Failure | None = None) -> list[QualityNote]:
    """Return what is unusual about an attempt, how it failed first.

    Args:
        root: the first failure of the attempt; None: it is not known, and the process that was gone first is named.
    """
    return [*_of_life(ends, attempt, root), *notes_of_records(ends.life.job, attempt)]


def notes_of_records(job: JobRecords, attempt: int | None = None) -> list[QualityNote]:
    """Return what the records of an attempt do not show; None: of the newest."""
    return job_notes.data_notes(facts(job).of_attempt(attempt), [one for one in job.shared if attempt in {None, one.attempt}])


def _of_life(ends: ProcessEnds, attempt: int, root: Failure | None) -> list[QualityNote]:
    """Note how an attempt failed, and with which others it ran at once, by the rules that the report on the whole life has."""
    few, clock, attempts = ends.life.job, ends.clock, [*ends.attempts]
    mine = [run for run in attempts if run.attempt == attempt]
    if not mine:
        return []
    normal, now = ends.normal(), time.time()
    attempts[-1] = with_hang_until(attempts[-1], few, clock, normal, now)
    run = attempts[-1] if mine[-1].attempt == attempts[-1].attempt else mine[-1]
    launch, last = launch_of(run, attempts, job_allocations(few, attempts, clock, (), now), clock)
    end = ending(run, few, clock, normal, launch, last=last, now=now)
    return [*_failure(few, attempt, end, root), *at_once(attempts, clock, attempt)]


def _failure(job: JobRecords, attempt: int, end: AttemptEnding, root: Failure | None) -> list[QualityNote]:
    # A hang counts if somebody who watched saw it: else it may only be that the records of steps were cut off.
    seen = end.kind != "hung" or any(row.attempt == attempt for row in job.hangs)
    if not (end.failed or end.lasts) or end.kind in NOBODYS or not seen:
        return []
    command = next((row.reason for row in job.ends if row.rank == LAUNCHER_RANK and row.attempt == attempt), "")
    return [
        QualityNote(
            what=_how(end, command, root),
            severity="limited",
            means=f"{STEPS_BEFORE}; what the failure cost: tachoscope goodput {job.job}, with the same --store",
        )
    ]


def _how(end: AttemptEnding, command: str, root: Failure | None) -> str:
    if end.lasts:
        return f"the job hangs: {end.reason}"
    if end.kind == "hung":
        return f"{job_notes.HUNG}: {end.reason}"
    if root is not None and root.rank is not None and root.cause != "hang":
        said = root.message.partition("\n")[0]
        return job_notes.crash(root.rank, (root.step or 1) - 1, root.exception or said, command)
    if end.process is None:
        return f"the command failed: {end.reason}"
    own = end.process.ended.reason if end.process.ended is not None else ""
    seen = end.process.failed.reason if end.process.failed is not None else "killed"
    return job_notes.crash(end.process.rank, end.process.last_step, own or seen, command)


def at_once(runs: Sequence[Run], clock: Clock, attempt: int | None = None) -> list[QualityNote]:
    """Note attempts that ran at once, as when one name is used twice.

    Args:
        attempt: only what ran at once with this one; None: all.
    """
    pairs = [
        (key[0], run.attempt, when) for run in runs for key, when in run.beside.items() if attempt in {None, key[0], run.attempt}
    ]
    if not pairs:
        return []
    told = [
        f"{one} and {other} from {_utc(clock, when[0])} to {_utc(clock, when[1])} UTC" for one, other, when in pairs[:_MOST_PAIRS]
    ]
    more = [f"{len(pairs) - _MOST_PAIRS} more pairs"] if len(pairs) > _MOST_PAIRS else []
    means = "each counts with its own time, and what both did is not lost work; if they are two jobs, give them two names (--job)"
    what = f"{'two' if len(pairs) == 1 else 'several'} attempts ran at once: {', '.join([*told, *more])}"
    return [QualityNote(what=what, severity="limited", means=means)]


def _utc(clock: Clock, seconds: float) -> str:
    return datetime.fromtimestamp(clock.unix(seconds), UTC).strftime("%Y-%m-%d %H:%M:%S")
