"""The processes of a service, from their records: when they served, when none did, and what was cut off when one died."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tachoscope_analyzers.records.load import RUNNING_SECONDS, JobRecords
from tachoscope_analyzers.serving.records.traffic import LOADING
from tachoscope_core.records import records
from tachoscope_core.records.serving import IN_FLIGHT, in_flight, plausible, was_in_flight

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """One process that answers requests. Times are Unix seconds.

    Attributes:
        began: when the operating system started it. ready: when it could answer, as far as its records tell.
        last: its end, or the last that was heard of it. ended: whether it said that it ended.
        in_flight: requests that it had then.
    """

    writer: str
    began: float
    ready: float
    last: float
    ended: bool
    in_flight: int


def requests_of(job: JobRecords, side: str) -> list[records.RequestDone]:
    """Return the requests that this side recorded, without those whose times cannot be."""
    return [request for request in job.requests if request.side == side and plausible(request)]


def windows_of(job: JobRecords) -> list[records.EngineWindow]:
    """Return what engines said of themselves, without windows whose times cannot be."""
    return [window for window in job.engine_windows if window.window_seconds > 0.0 and plausible(window)]


def engine_losses(job: JobRecords) -> dict[str, float]:
    """Return the seconds of engines that no window reports, by ledger state.

    `cold_start`: a process with an engine took so long to begin, with the absence of all engines before it if the last of them was
    killed. `unexplained`: it was killed so long after its last window.
    """
    signs, ended = _signs(job), {end.writer for end in job.service_ends}
    started = {start.writer: start.process_time for start in job.services if start.process_time > 0.0}
    last_window: dict[tuple[str, str], float] = {}
    for window in windows_of(job):
        key = window.writer, window.engine
        last_window[key] = max(window.time, last_window.get(key, -math.inf))
    found = {"cold_start": 0.0, "unexplained": 0.0}
    before: tuple[float, str] | None = None
    for writer in sorted({writer for writer, _ in last_window}, key=lambda writer: signs[writer]):
        first, last = signs[writer]
        since = min(started.get(writer, first), first)
        if before is not None and before[0] < first and before[1] not in ended:
            since = min(since, before[0])
        found["cold_start"] += first - since
        before = max(before, (last, writer)) if before is not None else (last, writer)
    for (writer, _), until in last_window.items():
        if writer not in ended:
            found["unexplained"] += max(signs[writer][1] - until, 0.0)
    return found


def processes(job: JobRecords) -> list[ServerProcess]:
    """Return the processes that answer requests in the order in which they were started.

    Where none says that it does, those that work on requests. A process is ready with its first request, since a server takes none
    before; but where requests are rare, that came late because nobody asked: three mean gaps between requests are allowed for.
    """
    signs = _signs(job)
    roles = {start.writer: start for start in job.services}
    chosen = [writer for writer in signs if _role(roles, writer) == "server"]
    chosen = chosen or [writer for writer in signs if _role(roles, writer) == "engine"]
    ends = {end.writer: end for end in job.service_ends}
    requests: dict[str, list[records.RequestDone]] = defaultdict(list)
    for request in requests_of(job, "server"):
        requests[request.writer].append(request)
    beats = {row.writer: row for row in job.heartbeats.take(job.heartbeats.has(IN_FLIGHT))}  # the last one of each stays
    patience = 3.0 * _mean_gap(row.time - row.wall_seconds for rows in requests.values() for row in rows)
    found = []
    for writer in chosen:
        first, last = signs[writer]
        start, end = roles.get(writer), ends.get(writer)
        began = start.process_time if start is not None and 0.0 < start.process_time <= first else first
        asked = min((row.time - row.wall_seconds for row in requests[writer]), default=first)
        left = end.in_flight if end is not None else _left(beats.get(writer), requests[writer])
        found.append(ServerProcess(writer, began, max(first, asked - patience), last, end is not None, left))
    return sorted(found, key=lambda process: (process.began, process.writer))


def _mean_gap(arrivals: Iterable[float]) -> float:
    times = sorted(arrivals)
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0


def _role(roles: dict[str, records.ServiceStarted], writer: str) -> str:
    return roles[writer].role if writer in roles else "server"


def _signs(job: JobRecords) -> dict[str, Span]:
    """Return when each process was first and last heard of."""
    found: dict[str, Span] = {}
    clients = {row.writer for row in job.requests if row.side == "client"}
    of_service = {row.writer for rows in (job.services, job.requests, job.engine_windows) for row in rows} - clients
    rows: Iterable[records.Record] = itertools.chain(job.services, job.requests, job.engine_windows, job.service_ends)
    beats = zip(job.heartbeats.writers(), job.heartbeats.column("time").tolist(), strict=True)
    for writer, time in (*((row.writer, row.time) for row in rows), *beats):
        if writer in of_service:
            first, last = found.get(writer, (math.inf, -math.inf))
            found[writer] = min(first, time), max(last, time)
    return found


def _left(beat: records.Heartbeat | None, requests: Iterable[records.RequestDone]) -> int:
    """Return a process's open requests when last heard of: by its last heartbeat, less those ended since."""
    said = in_flight(beat) if beat is not None else None
    return max(0, said - sum(was_in_flight(row, beat.time) for row in requests)) if beat is not None and said else 0


def aborted_requests(job: JobRecords, found: list[ServerProcess], *, now: float | None = None) -> int:
    """Return how many requests broke off because their process ended.

    Args:
        now: Unix seconds; a process that wrote nothing for a minute by then is gone. None: it is so only if a record says so, or
            a later process of the service was started.
    """
    gone = {row.failed_writer for row in job.failures}
    over = max((row.time for row in job.ends if row.rank == records.LAUNCHER_RANK), default=-math.inf)
    newest = max((process.began for process in found), default=-math.inf)
    return sum(
        process.in_flight
        for process in found
        if process.ended
        or process.writer in gone
        or process.last <= max(over, newest)
        or (now is not None and now - process.last > RUNNING_SECONDS)
    )


def outages(job: JobRecords, found: list[ServerProcess]) -> list[tuple[Span, str]]:
    """Return the spans of time in which nobody could answer, with the reason: no process was there, or all engines were loading.

    A process that died idle left no sign of when: its absence counts from the start of the next one.
    """
    spans: list[tuple[Span, str]] = []
    before: ServerProcess | None = None
    for process in sorted(found, key=lambda process: process.ready):
        if before is not None:
            gone = before.last if before.ended or before.in_flight else max(before.last, process.began)
            if gone < process.ready:
                spans.append(((gone, process.ready), "no process of the service was there"))
        before = process if before is None or process.last > before.last else before
    return [*spans, *((span, LOADING) for span in _loading(job))]


def _loading(job: JobRecords) -> list[Span]:
    cold: list[Span] = []
    warm: list[Span] = []
    for window in windows_of(job):
        begin = window.time - window.window_seconds
        until = begin + min(window.state_seconds.get("cold_start", 0.0), window.window_seconds)
        cold += [(begin, until)] if until > begin else []
        warm += [(until, window.time)] if until < window.time else []
    return [span for span in _joined(cold) if not any(begin < span[1] and end > span[0] for begin, end in _joined(warm))]


def _joined(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found
