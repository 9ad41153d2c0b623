"""From the records of a job to the first failure of each of its attempts, and whether another attempt is worth it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from tachoscope_analyzers.attempts.endings import AttemptEnding, final_hang
from tachoscope_analyzers.attempts.hangs import Hang, HangThreshold
from tachoscope_analyzers.attempts.process_ends import ProcessEnds, process_ends
from tachoscope_analyzers.attempts.processes import Clock
from tachoscope_analyzers.attempts.step_numbering import Run
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.failures.error_template import template_of
from tachoscope_analyzers.failures.host_clocks import ahead_seconds
from tachoscope_analyzers.failures.rank_ends import AttemptEnds, RankEnd, ends_of
from tachoscope_analyzers.failures.root import Root, root_of
from tachoscope_analyzers.records.load import JobRecords, from_store
from tachoscope_core.records import records
from tachoscope_core.report.failures import Failure, SaidAfter
from tachoscope_core.report.job_life import NOBODYS
from tachoscope_core.storage.store import Store

_INTERRUPTED = {130, -2}
_Key = tuple[object, ...]


def failures(job: JobRecords, ends: ProcessEnds | None = None) -> list[Failure]:
    """Return the first failure of each attempt that failed, in order, by the first and the last steps of each process.

    Args:
        ends: those of the job's processes, where they were found before.
    """
    if not _any_failed(job):
        return []
    ends = ends or process_ends(job)
    return failures_of_runs(ends.life.job, ends.clock, ends.attempts, ends.normal())


def _any_failed(job: JobRecords) -> bool:
    """Return whether anything is said of a failure: of a job that runs well the watch asks every minute."""
    said = job.process_failures or job.process_exits or job.failures or job.out_of_memory
    return bool(said) or any(row.rank >= 0 and row.status == "failed" for row in job.ends)


def failures_in_store(store: Store, job: str) -> list[Failure]:
    """Return the first failure of each attempt of a stored job that failed, in order.

    Only the first and the last objects of each process are read: they tell how it ended, and how far it came.

    Raises:
        TachoscopeError: the store has no such job, or cannot be read.
    """
    return failures(from_store(store, job, ends_only=True))


def failures_of_runs(job: JobRecords, clock: Clock, attempts: Sequence[Run], normal: HangThreshold) -> list[Failure]:
    """Return the first failure of each attempt that failed, in order.

    Args:
        attempts: those in which a rank began to train; others are found by what was said of their ends. normal: of their steps.
    """
    judged = _Judged(job, clock, attempts, normal)
    roots: list[tuple[int, Root]] = []
    known: set[tuple[str, str, str]] = set()
    for attempt, ends in ends_of(job, clock, ahead_seconds(job)).items():
        root = root_of(ends, known_templates=known, hang=judged.hang(attempt)) if judged.failed(attempt, ends) else None
        if root is not None and not judged.was_noticed(attempt, root):
            roots.append((attempt, root))
        elif root is None:
            known |= {end.template for end in ends.ends if end.nature == "thread"}
    unknown = {attempt for attempt, root in roots if root.end.nature == "secondary"}
    return _with_repeats([judged.failure(attempt, root) for attempt, root in roots], judged, unknown)


@dataclass(frozen=True, slots=True)
class _Judged:
    job: JobRecords
    clock: Clock
    runs: Sequence[Run]
    normal: HangThreshold

    def _runs_of(self, attempt: int) -> list[Run]:
        return [run for run in self.runs if run.attempt == attempt]

    def failed(self, attempt: int, ends: AttemptEnds) -> bool:
        """Return whether an attempt failed, by the word of its launcher for the last one that it started."""
        if not any(end.nature in {"primary", "secondary"} for end in ends.ends) and not ends.terminated:
            return False
        launches = sorted({row.attempt for row in self.job.starts if row.rank == records.LAUNCHER_RANK})
        launch = max((one for one in launches if one <= attempt), default=None)
        after = min((one for one in launches if one > attempt), default=None)
        known = {row.attempt for row in (*self.job.starts, *self.job.process_exits, *self.job.process_failures)}
        is_last = not any(attempt < one and (after is None or one < after) for one in known)
        said = [row for row in self.job.ends if row.rank == records.LAUNCHER_RANK and row.attempt == launch]
        if not is_last or not said:
            return True
        return any(row.status == "failed" for row in said) and not any(map(_by_user, said))

    def hang(self, attempt: int) -> Hang | None:
        """Return the hang that an attempt ended in; None: it did not."""
        found = self._runs_of(attempt)
        return final_hang(found[-1], self.job, self.clock, self.normal) if found and found[-1].processes else None

    def was_noticed(self, attempt: int, root: Root) -> bool:
        """Return whether the job had a notice of preemption since it was launched: then its end is not a failure."""
        if root.end.nature == "primary" and root.end.cause != "killed":
            return False
        launches = [row for row in self.job.starts if row.rank == records.LAUNCHER_RANK and row.attempt <= attempt]
        launch = max((row.attempt for row in launches), default=None)
        # A notice that ended an earlier launch says nothing of this one.
        began = min((self.clock.unix_seconds(row) for row in launches if row.attempt == launch), default=0.0)
        times = [self.clock.unix_seconds(row) for row in self.job.notices]
        return any(began <= at and 0 <= root.end.at - at <= threshold("notice_seconds") for at in times)

    def made_progress(self, attempt: int) -> bool:
        """Return whether an attempt did a step that none before it had done."""
        return any(run.highest > run.done_before for run in self._runs_of(attempt))

    def failure(self, attempt: int, root: Root) -> Failure:
        end = root.end
        return Failure(
            attempt=attempt,
            time=self.clock.unix(end.at),
            step=self._step(attempt, end.rank),
            rank=end.rank,
            host=end.host or self._host(attempt, end.rank),
            cause=end.cause,
            signal=end.signal,
            exception=end.exception,
            location=end.location,
            function=end.function,
            message=end.message,
            cascade=[one.rank for one in root.cascade],
            same_error=[one.rank for one in root.same],
            said_after=[
                SaidAfter(rank=one.rank, seconds_after=round(one.at - end.at, 3), message=_words(one)) for one in root.cascade
            ],
        )

    def _step(self, attempt: int, rank: int) -> int | None:
        for run in reversed(self._runs_of(attempt)):
            last = max((process.last_step for process in run.processes if process.rank == rank), default=0)
            if last:
                return int(run.numbers(np.array([last]))[0]) + 1
        return None

    def _host(self, attempt: int, rank: int) -> str:
        return next((row.host for row in self.job.starts if row.attempt == attempt and row.rank == rank), "")


def _by_user(command: records.JobEnded) -> bool:
    return command.exit_code in _INTERRUPTED or command.reason.startswith(records.INTERRUPTED)


def _words(end: RankEnd) -> str:
    if end.nature == "terminated":
        where = f", at {end.location}" if end.location else ""
        return f"torchrun ended it{where}"
    return ": ".join(filter(None, (end.exception, end.message.splitlines()[0] if end.message else "")))


def _with_repeats(found: Sequence[Failure], judged: _Judged, unknown: Set[int]) -> list[Failure]:
    """Say of each failure whether the one before it had the same root, and no step was done in between that was new.

    Args:
        unknown: attempts of which it is only known that ranks lost another one.
    """
    done: list[Failure] = []
    by_key: Mapping[int, _Key] = {one.attempt: _key(one) for one in found}
    for one in found:
        before = done[-1] if done else None
        is_same = before is not None and by_key[before.attempt] == by_key[one.attempt] and one.attempt not in unknown
        if before is not None and is_same and not judged.made_progress(one.attempt):
            done.append(_repeated(one, before.attempt))
        else:
            done.append(one)
    return done


def _repeated(one: Failure, attempt: int) -> Failure:
    return msgspec.structs.replace(one, repeats_attempt=attempt, policy="stop")


def _key(one: Failure) -> _Key:
    """Return what two failures have in common that have the same root; where no code is known to be at fault, the rank counts."""
    whose = None if one.exception or one.location else one.rank
    return one.cause, one.exception, one.location, template_of(one.message), whose


def with_root(ending: AttemptEnding, run: Run, found: Sequence[Failure]) -> AttemptEnding:
    """Return how an attempt ended, by the process of its first failure: the one that was gone first may be a victim."""
    root = next((one for one in found if one.attempt == run.attempt), None)
    if root is None or not ending.failed or ending.kind in NOBODYS:
        return ending
    process = next((one for one in run.processes if one.rank == root.rank), None)
    if process is None or (ending.process is not None and ending.process.rank == process.rank):
        return ending
    what = root.exception or root.message.partition("\n")[0] or root.cause
    return replace(ending, process=process, reason=f"rank {process.rank} on {process.host}: {what}")
