"""How each rank of an attempt ended: joined from what it said itself, what torchrun saw, and what the launcher or agent saw."""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from tachoscope_analyzers.attempts.processes import Clock
from tachoscope_analyzers.failures.error_template import template_of
from tachoscope_analyzers.failures.secondary_errors import is_secondary, may_be_secondary, says_secondary
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.records import records
from tachoscope_core.report.failures import Cause

Nature = Literal["primary", "secondary", "thread", "handled", "left", "terminated"]
"""`primary`: the rank's own failure. `secondary`: it says that another one is the cause. `thread`: an exception that ended only a
thread. `left`: it ended in order. `terminated`: torchrun ended it."""

_NO_MEMORY = re.compile(r"out of memory|can't allocate memory|Cannot allocate memory|not enough memory")
_NO_MEMORY_TYPES = frozenset({"OutOfMemoryError", "MemoryError"})
_WORKER_KILLED = re.compile(r"DataLoader worker \(pid.{0,40}\) (?:is killed by signal|exited unexpectedly with exit code -\d)")
_WORKER_EXITED = re.compile(r"DataLoader worker \(pid.{0,40}\) exited unexpectedly with exit code \d")
_FROM_OUTSIDE = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
"""Signals that no fault of code raises."""
_TIMER = "Timeout ("
"""What `faulthandler.dump_traceback_later` says when it ends a process that did not go on."""
_TOLD_TO_GO = {-signal.SIGTERM, 128 + signal.SIGTERM}


@dataclass(frozen=True, slots=True)
class RankEnd:
    """An end of a rank, or of a thread of it.

    Attributes:
        at: seconds on the axis of a `Clock`.
        stood, stood_in: line and function where the main thread was when another thread, or a signal from outside, ended the
            process; empty: not known, or `location` is it. waits: for other ranks, at that line.
        by_thread: another thread than the main one ended the process.
        unclear: only the type of its error is known, one that a rank raises that lost another, among others.
        signal: name of the one that killed it; empty: none did, or which is not known.
        since: when a watcher last saw it alive, of one that was found gone at `at`; None: not known. The rest as in `Failure`.
    """

    rank: int
    at: float
    nature: Nature
    cause: Cause
    host: str = ""
    exception: str = ""
    message: str = ""
    location: str = ""
    function: str = ""
    stood: str = ""
    stood_in: str = ""
    by_thread: bool = False
    waits: bool = False
    unclear: bool = False
    signal: str = ""
    since: float | None = None

    @property
    def line(self) -> tuple[str, str]:
        """Line and function where the main thread was."""
        return (self.stood, self.stood_in) if self.stood else (self.location, self.function)

    @property
    def template(self) -> tuple[str, str, str]:
        """What ends have in common that are the same error."""
        return self.exception, self.location, template_of(self.message)


@dataclass(slots=True)
class AttemptEnds:
    """All that is known of the ends of an attempt's ranks, in order of time.

    Attributes:
        terminated_at: when torchrun began to terminate ranks; None: it did not, or it is not known.
        terminated: where ranks were that torchrun ended, by rank.
        handled: errors that ranks were busy with, by rank, the first of each.
        hosts: of all ranks that are known; empty: not known. heard_hosts: on which the end of the attempt was seen.
    """

    ends: list[RankEnd] = field(default_factory=list)
    terminated_at: float | None = None
    terminated: dict[int, RankEnd] = field(default_factory=dict)
    handled: dict[int, RankEnd] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    heard_hosts: set[str] = field(default_factory=set)


def ends_of(job: JobRecords, clock: Clock, late_seconds: dict[str, float]) -> dict[int, AttemptEnds]:
    """Return the ends by attempt.

    Args:
        late_seconds: by how much the clocks of hosts are ahead, by host.
    """
    joining = _Joining(job, clock, late_seconds)
    attempts = {row.attempt for row in (*job.process_failures, *job.process_exits, *job.ends, *job.out_of_memory)}
    attempts |= {row.failed_attempt for row in job.failures}
    return {attempt: joining.of_attempt(attempt) for attempt in sorted(attempts)}


class _Joining:
    def __init__(self, job: JobRecords, clock: Clock, late_seconds: dict[str, float]) -> None:
        self._job, self._clock, self._late = job, clock, late_seconds
        self._starts = [row for row in job.starts if row.rank >= 0]

    def _at(self, row: records.Record, unix_seconds: float | None = None) -> float:
        at = self._clock.unix_seconds(row) if unix_seconds is None else self._clock.seconds(unix_seconds)
        return at - self._late.get(row.host, 0.0)

    def of_attempt(self, attempt: int) -> AttemptEnds:
        found = AttemptEnds(hosts={row.rank: row.host for row in self._starts if row.attempt == attempt})
        by_rank: dict[int, list[RankEnd]] = defaultdict(list)
        for end in self._own_words(attempt):
            if end.nature == "handled":
                found.handled.setdefault(end.rank, end)
            else:
                by_rank[end.rank].append(end)
        for end in self._as_torchrun_saw(attempt, found):
            _add_unless_known(by_rank[end.rank], end)
        for end in self._as_watched(attempt, {*found.terminated, *(row.exited_rank for row in self._exits(attempt))}):
            _add_unless_known(by_rank[end.rank], end)
        for row in self._job.out_of_memory:
            if row.failed_attempt == attempt and row.failed_rank >= 0 and row.victim != "other":
                _set_out_of_memory(by_rank[row.failed_rank], row, self._at(row))
        found.hosts |= {rank: ends[0].host for rank, ends in by_rank.items() if ends and not found.hosts.get(rank)}
        found.heard_hosts = {row.host for row in (*self._exits(attempt), *self._job.ends) if row.attempt == attempt}
        found.ends = sorted((end for ends in by_rank.values() for end in ends), key=lambda end: end.at)
        return found

    def _exits(self, attempt: int) -> list[records.ProcessExited]:
        return [row for row in self._job.process_exits if row.attempt == attempt]

    def _own_words(self, attempt: int) -> Iterator[RankEnd]:
        for row in self._job.process_failures:
            if row.attempt != attempt or (rank := self._rank_of(row, attempt)) is None:
                continue
            yield _own_end(row, rank, self._at(row))
        reported = {(row.host, row.failed_pid) for row in self._job.process_failures if row.attempt == attempt}
        for ended in self._job.ends:
            start = next((row for row in self._starts if row.writer == ended.writer), None)
            if ended.attempt != attempt or ended.rank < 0 or ended.status != "failed":
                continue
            if start is not None and (start.host, start.pid) not in reported:  # containers have the same process ids
                nature: Nature = "secondary" if is_secondary(ended.reason, "") else "primary"
                end = RankEnd(ended.rank, self._at(ended), nature, "exception", ended.host, ended.reason)
                yield replace(end, unclear=may_be_secondary(ended.reason))

    def _rank_of(self, row: records.ProcessFailed, attempt: int) -> int | None:
        """Return whose end it was; None: of a process that is no rank, such as torchrun itself."""
        if row.failed_rank >= 0:
            return row.failed_rank
        starts = [start for start in self._starts if start.attempt == attempt]
        same = next((start.rank for start in starts if start.pid == row.failed_pid and start.host == row.host), None)
        if same is not None:
            return same
        others = starts or any(one.attempt == attempt and one.failed_rank >= 0 for one in self._job.process_failures)
        return None if others or self._exits(attempt) else 0

    def _as_torchrun_saw(self, attempt: int, found: AttemptEnds) -> Iterator[RankEnd]:
        for row in self._exits(attempt):
            if row.exited_rank < 0 and any(one.exited_rank >= 0 for one in self._exits(attempt)):
                continue
            rank = max(row.exited_rank, 0)
            found.hosts.setdefault(rank, row.host)
            if row.terminated:
                end = RankEnd(rank, self._at(row), "terminated", "killed", row.host, message=row.message)
                found.terminated[rank] = replace(end, location=row.location, function=row.function, waits=row.waits)
            elif row.exit_code == 0:
                end = RankEnd(rank, self._at(row), "left", "exited", row.host, message="exit code 0")
                yield replace(end, location=row.location, function=row.function)
            else:
                found.terminated_at = min(self._at(row), self._at(row) if found.terminated_at is None else found.terminated_at)
                yield _of_exit(row, rank, self._at(row))

    def _as_watched(self, attempt: int, seen: set[int]) -> Iterator[RankEnd]:
        """Yield what only the launcher or the agent saw: where torchrun says how the ranks ended, that is the better word."""
        for row in self._job.failures:
            if row.failed_attempt != attempt or row.failed_rank < 0 or row.failed_rank in seen:
                continue
            start = next((one for one in self._starts if one.writer == row.failed_writer), None)
            host, at = start.host if start is not None else row.host, self._at(row, row.gone_time or row.time)
            if row.reason == "killed":
                last_seen = self._at(row, row.seen_time) if row.seen_time and row.exit_code not in _TOLD_TO_GO else None
                code = row.exit_code or 0
                name = _signal_name(128 - code if code > 128 else code)  # a shell gives 128 and the signal
                yield RankEnd(row.failed_rank, at, "primary", "killed", host, "", "killed", signal=name, since=last_seen)
            else:
                nature: Nature = "secondary" if is_secondary(row.reason, "") else "primary"
                yield RankEnd(row.failed_rank, at, nature, "exception", host, row.reason)


def _own_end(row: records.ProcessFailed, rank: int, at: float) -> RankEnd:
    message = row.message
    if row.how == "exit" and not row.exception:
        code = row.exit_code or 0
        said = message or (row.said[-1] if row.said and code else "")
        message = f"exit code {code}" + (f": {said}" if said else "")
        nature: Nature = "left" if not code else "secondary" if says_secondary(said) else "primary"
        end = RankEnd(rank, at, nature, "exited", row.host, "", message, row.location, row.function)
        by_thread = bool(row.main_location or row.main_waits)
        return replace(end, stood=row.main_location, stood_in=row.main_function, by_thread=by_thread, waits=row.main_waits)
    if row.how in {"thread", "handled"}:
        nature = "thread" if row.how == "thread" else "handled"
        return RankEnd(rank, at, nature, _cause(row), row.host, row.exception, message, row.location, row.function)
    nature = "secondary" if is_secondary(row.exception, message) else "primary"
    if row.how == "exit" and not row.exit_code:
        nature = "left"  # an error that was handled, and the process left in order
    return RankEnd(rank, at, nature, _cause(row), row.host, row.exception, message, row.location, row.function)


def _cause(row: records.ProcessFailed) -> Cause:
    if row.exception in _NO_MEMORY_TYPES or (row.exception == "RuntimeError" and _NO_MEMORY.search(row.message)):
        return "out_of_memory"
    if row.exception == SystemExit.__name__ or _WORKER_EXITED.search(row.message):
        return "exited"
    return "killed" if _WORKER_KILLED.search(row.message) else "exception"


def _of_exit(row: records.ProcessExited, rank: int, at: float) -> RankEnd:
    name = _signal_name(row.exit_code)
    message = f"killed by {name}" if name else f"exit code {row.exit_code}"
    end = RankEnd(rank, at, "primary", "killed" if name else "exited", row.host, signal=name)
    if -row.exit_code in _FROM_OUTSIDE:  # the line where it arrived is not a cause
        words = f"{message}, at {row.location}" if row.location else message
        return replace(end, message=words, stood=row.location, stood_in=row.function)
    words = f"{message}: {row.message}" if row.message else message
    if row.exit_code == 1 and row.message.startswith(_TIMER):
        stood = replace(end, stood=row.location, stood_in=row.function, waits=row.waits)
        return replace(stood, cause="hang", message=words, by_thread=True)
    return replace(end, message=words, location=row.location, function=row.function)


def _signal_name(code: int) -> str:
    """Return the name of the signal behind an exit code as a parent gets it; empty: none ended the process."""
    if code >= 0:
        return ""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _add_unless_known(known: list[RankEnd], end: RankEnd) -> None:
    """Add an end of a rank that said nothing itself: else what it said led to that end, however long the clean-up took."""
    weaker = {"thread", "left"} if end.nature == "primary" else {"thread"}  # a crash may follow an ordered exit
    if all(one.nature in weaker for one in known):
        known.append(end)


def _set_out_of_memory(known: list[RankEnd], row: records.OutOfMemory, at: float) -> None:
    """Give the end of a rank its cause; where the rank left no word, the record is its end."""
    location, _, function = row.location.partition(" ")
    words = f"out of memory: limit of {row.limit_of or 'the host'}"
    for place, end in enumerate(known):
        if end.nature in {"primary", "secondary"}:
            known[place] = replace(
                end,
                at=min(end.at, at),
                nature="primary",
                cause="out_of_memory",
                message=end.message if end.exception else words,
                location=location or end.location,
                function=function or end.function,
            )
            return
    known.append(RankEnd(row.failed_rank, at, "primary", "out_of_memory", row.host, "", words, location, function))
