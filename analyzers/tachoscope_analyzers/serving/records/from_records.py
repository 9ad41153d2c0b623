"""Traffic from the records of a service: what its processes, or its clients, wrote of each request and each engine.

A record tells how long a request was in each state, not when: `cold_start` and `queued` are taken to come first, then `prefill`,
then `decode`, with what was `preempted` spread evenly in it. Times from one token to the next lie evenly after the first token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.serving.records import processes as process_module
from tachoscope_analyzers.serving.records.time_bins import Vector, at_moments, buckets, spread
from tachoscope_analyzers.serving.records.traffic import Traffic
from tachoscope_core.metrics.serving import (
    ENGINE_STATES,
    FIRST_TOKEN_BUCKETS,
    INTER_TOKEN_BUCKETS,
    OUTCOMES,
    QUEUE_BUCKETS,
    REQUEST_BUCKETS,
    REQUEST_STATES,
)
from tachoscope_core.records import records
from tachoscope_core.records import serving as serving_records
from tachoscope_core.servers import OWN
from tachoscope_core.servers.snapshot import Buckets

Side = Literal["server", "client"]

MOST_INTERVALS = 600
SECONDS_BOUNDS = tuple(
    sorted({*REQUEST_BUCKETS, *FIRST_TOKEN_BUCKETS, *QUEUE_BUCKETS, *(float(f"{10 ** (k / 20 - 3):.3g}") for k in range(121))})
)
"""From 1 ms to 1000 s, each at most an eighth above the one before, with all bounds of our metrics."""
TOKEN_BOUNDS = tuple(sorted({float(round(10 ** (k / 10))) for k in range(61)}))


def request_states(job: JobRecords, side: Side = "server") -> dict[str, float]:
    """Return the seconds of all requests by ledger state; they add up to the requests' time from arrival to end."""
    return _added((serving_records.request_states(row) for row in process_module.requests_of(job, side)), REQUEST_STATES)


def engine_states(job: JobRecords) -> dict[str, float]:
    """Return the seconds of all engines by ledger state, from the start of their processes, through their absence if killed."""
    told = (serving_records.engine_states(row) for row in process_module.windows_of(job))
    return _added((*told, process_module.engine_losses(job)), ENGINE_STATES)


def _added(rows: Iterable[dict[str, float]], states: Sequence[str]) -> dict[str, float]:
    found = dict.fromkeys(states, 0.0)
    for row in rows:
        for state, seconds in row.items():
            found[state] += seconds
    return found


def last_seconds(job: JobRecords, seconds: float) -> JobRecords:
    """Return the job with only the requests and engine windows that ended in the last seconds before the newest of them."""
    rows = [*job.requests, *job.engine_windows]
    since = max((row.time for row in rows), default=0.0) - seconds
    return replace(
        job,
        requests=[row for row in job.requests if row.time >= since],
        engine_windows=[row for row in job.engine_windows if row.time >= since],
    )


def traffic_of(job: JobRecords, side: Side = "server", *, now: float | None = None) -> Traffic:
    """Return the traffic of a service as one side recorded it, in intervals of a second, or in 600 longer ones.

    Requests that were refused at once have an outcome and are in no histogram. A request of which no record is there was in flight
    when its process ended, or the recording: it is counted as cut, as far as heartbeats report it, and is in no gauge.

    Args:
        now: Unix seconds; a process that wrote nothing for a minute by then is gone. None: only a record says that one is.

    Raises:
        ValueError: there are neither requests of that side nor engines.
    """
    requests = process_module.requests_of(job, side)
    windows = process_module.windows_of(job) if side == "server" else []
    if not requests and not windows:
        raise ValueError(f"no requests that a {side} recorded")
    found = process_module.processes(job) if side == "server" else []
    edges = _edges([*requests, *windows])
    worked = _Requests([request for request in requests if serving_records.was_worked_on(request)], edges)
    engines = _Engines(windows, edges)
    away = process_module.outages(job, found)
    faults = [(at, why) for at in edges for (begin, end), why in away if begin <= at < end]
    unanswered = {at for at, _ in faults}
    answered = np.array([at not in unanswered for at in edges])
    outcomes = Counter(request.outcome for request in requests if request.outcome in OUTCOMES)
    outcomes["cut"] += process_module.aborted_requests(job, found, now=now)
    counts, sums, totals = worked.histograms()
    engines.add_histogram(counts, sums, totals)
    return Traffic(
        server=OWN,
        start=float(edges[0]),
        end=float(edges[-1]),
        seconds=np.diff(edges),
        answered=answered[:-1] & answered[1:],
        engines=engines.number(),
        models=tuple(sorted({*(row.model for row in requests), *(row.model for row in windows)} - {""})),
        gauges=(worked.gauges() or engines.queue()) | engines.kv_cache(),
        counters=worked.counters() | engines.counters(),
        counts=counts,
        sums=sums,
        totals=totals,
        outcomes={outcome: float(count) for outcome, count in outcomes.items() if count},
        started=[(float(at), start) for at in edges if at not in unanswered and (start := _started(found, float(at)))],
        faults=[(float(at), why) for at, why in faults],
        request_states=worked.states(),
        engine_states=engines.states(),
    )


def _started(found: Sequence[process_module.ServerProcess], at: float) -> float:
    """Return the start of the oldest process at that time: another worker is not a restart."""
    return min((process.began for process in found if process.began <= at <= process.last), default=0.0)


def _edges(rows: Sequence[records.RequestDone | records.EngineWindow]) -> Vector:
    begin = min(row.time - (row.wall_seconds if isinstance(row, records.RequestDone) else row.window_seconds) for row in rows)
    end = max(row.time for row in rows)
    return np.linspace(begin, max(end, begin + 1e-3), max(1, min(MOST_INTERVALS, round(end - begin))) + 1)


class _Requests:
    """The requests of a side as columns, and their sums by interval."""

    def __init__(self, rows: Sequence[records.RequestDone], edges: Vector) -> None:
        self._rows, self._edges = rows, edges
        self.end = self._column(lambda row: row.time)
        self.wall = self._column(lambda row: row.wall_seconds)
        self.arrival = self.end - self.wall
        phases = [serving_records.request_states(row) for row in rows]
        self.phase = {state: np.array([parts[state] for parts in phases]) for state in REQUEST_STATES[:-1]}
        seen = self._column(lambda row: np.nan if row.first_token_seconds is None else row.first_token_seconds)
        self.first = np.minimum(seen, self.wall)
        self.later = self._column(lambda row: row.inter_token_count)

    def _column(self, value: Callable[[records.RequestDone], float]) -> Vector:
        return np.array([value(row) for row in self._rows], dtype=np.float64)

    def gauges(self) -> dict[str, Vector]:
        """Return the requests that run and wait, on average over each interval; nothing where no request says its phases."""
        waited = self.phase["cold_start"] + self.phase["queued"]
        decoding = self.arrival + waited + self.phase["prefill"]
        decoded = np.minimum(decoding + self.phase["decode"] + self.phase["preempted"], self._edges[-1])
        if not any(parts.any() for parts in self.phase.values()):
            return {}
        waiting = spread(self.arrival, self.arrival + waited, waited, self._edges)
        waiting += spread(decoding, decoded, self.phase["preempted"], self._edges)
        running = spread(self.arrival + waited, decoding, self.phase["prefill"], self._edges)
        running += spread(decoding, decoded, self.phase["decode"], self._edges)
        width = np.diff(self._edges)
        return {"requests_running": running / width, "requests_waiting": waiting / width}

    def states(self) -> dict[str, Vector]:
        """Return the requests' seconds by ledger state in each interval; nothing where no request says its phases."""
        if not any(parts.any() for parts in self.phase.values()):
            return {}
        begin = self.arrival
        found = {}
        for state in ("cold_start", "queued", "prefill"):
            found[state] = spread(begin, begin + self.phase[state], self.phase[state], self._edges)
            begin = begin + self.phase[state]
        decoded = np.minimum(begin + self.phase["decode"] + self.phase["preempted"], self._edges[-1])
        for state in ("decode", "preempted"):
            found[state] = spread(begin, decoded, self.phase[state], self._edges)
        rest = np.maximum(self.wall - sum(self.phase.values()), 0.0)
        return found | {"unexplained": spread(np.minimum(self.end - rest, decoded), self.end, rest, self._edges)}

    def counters(self) -> dict[str, Vector]:
        """Return tokens and preemptions: prompts at the first token, the other tokens from there to the end."""
        shown = np.where(np.isnan(self.first), self.end, self.arrival + np.nan_to_num(self.first))
        out = self._column(lambda row: row.tokens_out)
        one = np.minimum(out, 1.0)
        found = {
            "prompt_tokens_total": at_moments(shown, self._column(lambda row: row.tokens_in), self._edges),
            "generation_tokens_total": at_moments(shown, one, self._edges) + spread(shown, self.end, out - one, self._edges),
            "preemptions_total": at_moments(self.end, self._column(lambda row: row.preemptions), self._edges),
        }
        return {name: rows for name, rows in found.items() if rows.any()}

    def histograms(self) -> tuple[dict[str, Vector], dict[str, Vector], dict[str, Buckets]]:
        """Return counts and sums by interval, and the totals."""
        counts: dict[str, Vector] = {}
        sums: dict[str, Vector] = {}
        totals: dict[str, Buckets] = {}
        for name, values, times, bounds in self._observed():
            counts[name] = at_moments(times, np.ones_like(values), self._edges)
            sums[name] = at_moments(times, values, self._edges)
            totals[name] = buckets(values, bounds)
        if self.later.any():
            shown = np.where(np.isnan(self.first), self.arrival, self.arrival + np.nan_to_num(self.first))
            seconds = self._column(lambda row: row.inter_token_seconds)
            counts["inter_token_seconds"] = spread(shown, self.end, self.later, self._edges)
            sums["inter_token_seconds"] = spread(shown, self.end, seconds, self._edges)
            totals["inter_token_seconds"] = self._inter_token(float(seconds.sum()))
        return counts, sums, totals

    def _observed(self) -> list[tuple[str, Vector, Vector, tuple[float, ...]]]:
        """Return what is observed once in a request: values, their times, bounds."""
        streamed, many = ~np.isnan(self.first), self.later > 0
        mean = self._column(lambda row: row.inter_token_seconds)[many] / self.later[many]
        found = [
            ("first_token_seconds", self.first[streamed], (self.arrival + self.first)[streamed], SECONDS_BOUNDS),
            ("output_token_seconds", mean, self.end[many], SECONDS_BOUNDS),
            ("request_seconds", self.wall, self.end, SECONDS_BOUNDS),
        ]
        told = np.any([parts > 0.0 for parts in self.phase.values()], axis=0)
        for name, state in (("queue_seconds", "queued"), ("prefill_seconds", "prefill"), ("decode_seconds", "decode")):
            found.append((name, self.phase[state][told], self.end[told], SECONDS_BOUNDS))
        for name, tokens in (("prompt_tokens", "tokens_in"), ("generation_tokens", "tokens_out")):
            values = self._column(lambda row, tokens=tokens: getattr(row, tokens))  # type: ignore[misc]
            found.append((name, values[values > 0], self.end[values > 0], TOKEN_BOUNDS))
        return [row for row in found if len(row[1])]

    def _inter_token(self, seconds: float) -> Buckets:
        counts = np.zeros(len(INTER_TOKEN_BUCKETS) + 1)
        for row in self._rows:
            for index, count in enumerate(row.inter_token_buckets[: len(counts)]):
                counts[index] += count
        cumulative = np.cumsum(counts)
        cumulative[-1] = max(cumulative[-1], self.later.sum())
        return Buckets(INTER_TOKEN_BUCKETS, tuple(map(float, cumulative)), seconds)


class _Engines:
    """What engines said of themselves, by interval: of each window evenly."""

    def __init__(self, rows: Sequence[records.EngineWindow], edges: Vector) -> None:
        self._rows, self._edges = rows, edges

    def _spread(self, value: Callable[[records.EngineWindow], float | None]) -> Vector:
        told = [(row.time, row.window_seconds, amount) for row in self._rows if (amount := value(row)) is not None]
        end, seconds, amounts = np.array(told, dtype=np.float64).reshape(-1, 3).T
        return spread(np.maximum(end - seconds, self._edges[0]), end, amounts, self._edges)

    def number(self) -> int:
        covered = self._spread(lambda row: row.window_seconds) / np.diff(self._edges)
        return max(1, round(float(np.median(covered[covered > 0.0])))) if covered.any() else 1

    def states(self) -> dict[str, Vector]:
        """Return the engines' seconds by ledger state in each interval; nothing where there is no engine."""
        if not self._rows:
            return {}
        parts = {id(row): serving_records.engine_states(row) for row in self._rows}
        return {state: self._spread(lambda row, state=state: parts[id(row)][state]) for state in ENGINE_STATES}  # type: ignore[misc]

    def counters(self) -> dict[str, Vector]:
        """Return tokens and preemptions, where engines report any."""
        found = {
            "prompt_tokens_total": self._spread(lambda row: row.prompt_tokens),
            "generation_tokens_total": self._spread(lambda row: row.generation_tokens),
            "preemptions_total": self._spread(lambda row: row.preemptions),
        }
        return {name: rows for name, rows in found.items() if rows.any()}

    def kv_cache(self) -> dict[str, Vector]:
        """Return the mean of the engines' KV cache usage, where any says it; 0 where none was there."""
        used = self._spread(lambda row: None if (share := row.kv_cache_usage_ratio) is None else share * row.window_seconds)
        told = self._spread(lambda row: None if row.kv_cache_usage_ratio is None else row.window_seconds)
        return {"kv_cache_usage_ratio": used / np.maximum(told, 1e-9)} if told.any() else {}

    def queue(self) -> dict[str, Vector]:
        """Return the requests that run and wait by what the engines say, where they say it."""
        width = np.diff(self._edges)
        found = {}
        for name, key in (("requests_running", "running_mean"), ("requests_waiting", "waiting_mean")):
            if any(getattr(row, key) is not None for row in self._rows):
                found[name] = self._spread(lambda row, key=key: (getattr(row, key) or 0.0) * row.window_seconds) / width  # type: ignore[misc]
        return found

    def add_histogram(self, counts: dict[str, Vector], sums: dict[str, Vector], totals: dict[str, Buckets]) -> None:
        """Add tokens and seconds of an iteration, of which only the means are known."""
        iterations = self._spread(lambda row: row.iterations)
        if iterations.any():
            means = {
                "iteration_tokens": self._spread(lambda row: row.prompt_tokens + row.generation_tokens),
                "iteration_seconds": self._spread(lambda row: row.iteration_seconds),
            }
            for name, amounts in means.items():
                counts[name], sums[name] = iterations, amounts
                totals[name] = Buckets((), (float(iterations.sum()),), float(amounts.sum()))
