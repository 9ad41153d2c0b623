"""The two ledgers of inference: seconds of requests and seconds of engines, by state, interval by interval.

Requests that wait are counted by looking at the queue, those that decode by the times between their tokens, which servers observe
as they happen: histograms that are filled when a request ends would say nothing of those that have not ended yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.serving.records.traffic import LOADING, Traffic, Vector
from tachoscope_core.metrics.serving import ENGINE_STATES, REQUEST_STATES
from tachoscope_core.report.report import Ledger
from tachoscope_core.servers import OWN

_TO_FIRST_TOKEN, _AFTER_FIRST_TOKEN = (
    ("first_token_seconds", "prefill_seconds"),
    ("inter_token_seconds", "decode_seconds"),
)
_SAMPLING_ERRORS = 3.0
"""What the gauges show beyond what tokens account for is unexplained where it exceeds so many standard errors of sampling."""


@dataclass(frozen=True, slots=True)
class SecondsByState:
    """Request-seconds and engine-seconds of each interval by state, shape (K,) each.

    Attributes:
        away: intervals in which the server was restarted, or not there, or its backlog of that time was not served yet.
    """

    requests: dict[str, Vector]
    engines: dict[str, Vector]
    away: npt.NDArray[np.bool_]

    @property
    def request_seconds(self) -> Vector:
        """All request-seconds of each interval, shape (K,)."""
        return np.asarray(sum(self.requests.values()))

    @property
    def engine_seconds(self) -> Vector:
        """All engine-seconds of each interval, shape (K,)."""
        return np.asarray(sum(self.engines.values()))

    def ledgers(self, *, engines: bool = True) -> list[Ledger]:
        """Return both, that of the requests first, or that alone; states without a second are left out."""
        requests = _ledger("request", self.requests)
        return [requests, _ledger("engine", self.engines)] if engines else [requests]


def _ledger(unit: str, parts: dict[str, Vector]) -> Ledger:
    states = {state: float(parts[state].sum()) for state in parts}
    kept = {state: seconds for state, seconds in states.items() if seconds > 0.0}
    return Ledger(unit=unit, wall_seconds=sum(kept.values()), states=kept)  # type: ignore[arg-type]


def spent(traffic: Traffic) -> SecondsByState:
    """Return seconds by state of requests and engines, of records where there are some, else estimated."""
    away = _away(traffic)
    return SecondsByState(_recorded_states(traffic, away) or _requests(traffic, away), _engines(traffic, away), away)


def _recorded_states(traffic: Traffic, away: npt.NDArray[np.bool_]) -> dict[str, Vector]:
    """Return the seconds of requests as records tell them; waiting for a server that starts is its start's."""
    states = traffic.request_states
    if not states:
        return {}
    moved = np.where(away, states["queued"], 0.0)
    return states | {"queued": states["queued"] - moved, "cold_start": states["cold_start"] + moved}


def _away(traffic: Traffic) -> npt.NDArray[np.bool_]:
    """Return the intervals of a start: from the last look at the old process until the new one has served what had gathered.

    A queue that grows beyond what had gathered is no longer the start's doing.
    """
    begins = np.concatenate([[traffic.start], traffic.start + np.cumsum(traffic.seconds)])
    away = np.zeros(len(traffic.seconds), dtype=bool)
    for began, ready in starts(traffic):
        away |= (begins[1:] > began) & (begins[:-1] < ready)
        waiting = traffic.gauges.get("requests_waiting")
        after = int(np.searchsorted(begins, ready, side="left"))
        gathered = waiting[after] if waiting is not None and after < len(away) else 0.0
        while waiting is not None and after < len(away) and 1.0 <= waiting[after] <= gathered:
            away[after] = True
            after += 1
    return away


def starts(traffic: Traffic) -> list[tuple[float, float]]:
    """Return, for each start of the server seen, when the one before was last there and when the new one first answered.

    Unix seconds; where none was before, it is the first look. A server that does not come back is not a start.
    """
    found = []
    last_time, last_started = traffic.start, 0.0
    for index, (time, started) in enumerate(traffic.started):
        missed = [why for at, why in traffic.faults if last_time <= at < time]
        restarted = index > 0 and started > last_started + 1.0
        if restarted or (missed and (index == 0 or LOADING in missed)):
            found.append((last_time, time))
        last_time, last_started = time, started or last_started
    return found


def tells_phases(traffic: Traffic) -> bool:
    """Return whether the server says where its requests are: without, what is in no phase is not known, and no loss.

    Our own names are there of servers that report no phase, such as those of models without tokens, and then are 0.
    """
    if traffic.request_states or {"requests_running", "requests_waiting"} <= traffic.gauges.keys():
        return True
    sums = traffic.sums
    known = [name for name in sums if traffic.server != OWN or sums[name].any()]
    first, later = ({*names} & {*known} for names in (_TO_FIRST_TOKEN, _AFTER_FIRST_TOKEN))
    return bool(first or later) if traffic.server == OWN else bool(first and later)


def _requests(traffic: Traffic, away: npt.NDArray[np.bool_]) -> dict[str, Vector]:
    zero = np.zeros_like(traffic.seconds)
    sums, gauges = traffic.sums, traffic.gauges
    waiting = gauges["requests_waiting"] * traffic.seconds if "requests_waiting" in gauges else sums.get("queue_seconds", zero)
    between = sums.get("inter_token_seconds", sums.get("decode_seconds", zero))
    stalled = np.minimum(stalls(traffic, between), between)
    prefill = sums.get("prefill_seconds")
    if prefill is None:
        prefill = np.maximum(sums.get("first_token_seconds", zero) - sums.get("queue_seconds", zero), 0.0)
    # A stall is observed when it ends; the time itself was spent in the queue, among those that wait for their first token.
    preempted = stalled.sum() * _shares(waiting if waiting.sum() else stalled)
    queued = np.maximum(waiting - preempted, 0.0)
    states = dict.fromkeys(REQUEST_STATES, zero) | {
        "queued": np.where(away, 0.0, queued),
        "cold_start": np.where(away, queued, 0.0),
        "prefill": prefill,
        "decode": between - stalled,
        "preempted": preempted,
    }
    if traffic.server == OWN and not (between.any() or prefill.any()):  # a model without tokens: the engine says how many ran
        states["prefill"] = gauges.get("requests_running", zero) * traffic.seconds
        states["unexplained"] = _in_no_phase(traffic, queued + states["prefill"])
    elif tells_phases(traffic):
        states["unexplained"] = _before_the_engine(traffic) + _stuck(traffic, prefill + between - stalled)
    else:
        states["unexplained"] = _in_no_phase(traffic, queued + prefill + between)
    return states


def _in_no_phase(traffic: Traffic, accounted: Vector) -> Vector:
    """Return the time of requests that ended beyond what is accounted for, in the intervals in which they ended."""
    whole = traffic.sums.get("request_seconds", np.zeros_like(traffic.seconds))
    return np.asarray(max(float(whole.sum() - accounted.sum()), 0.0) * _shares(whole))


def _before_the_engine(traffic: Traffic) -> Vector:
    """Return the time of ended requests outside of queue, prefill and decode: the front end."""
    zero = np.zeros_like(traffic.seconds)
    parts = ("queue_seconds", "prefill_seconds", "decode_seconds")
    if "request_seconds" not in traffic.sums or any(part not in traffic.sums for part in parts):
        return zero
    rest = traffic.sums["request_seconds"] - sum((traffic.sums[part] for part in parts), zero)
    return np.asarray(max(float(rest.sum()), 0.0) * _shares(traffic.counts["request_seconds"]))


def _stuck(traffic: Traffic, accounted: Vector) -> Vector:
    """Return the seconds of running requests without a token, beyond the sampling error."""
    running = traffic.gauges.get("requests_running")
    if running is None or "inter_token_seconds" not in traffic.sums:
        return np.zeros_like(traffic.seconds)
    seen = running * traffic.seconds
    error = float(np.sqrt((running * traffic.seconds**2).sum()))
    rest = float(seen.sum() - accounted.sum()) - _SAMPLING_ERRORS * error
    return np.asarray(max(rest, 0.0) * _shares(np.maximum(seen - accounted, 0.0)))


def _shares(parts: Vector) -> Vector:
    return np.asarray(parts / max(float(parts.sum()), 1e-12))


def stalls(traffic: Traffic, between: Vector) -> Vector:
    """Return the seconds, shape (K,), that preempted requests waited for their next token: of `between` what they were not running.

    A preempted request waits in the queue, and its next token ends one long time between two.
    """
    preemptions, running = traffic.counters.get("preemptions_total"), traffic.gauges.get("requests_running")
    if preemptions is None or running is None or not preemptions.sum():
        return np.zeros_like(traffic.seconds)
    total = float(between.sum() - (running * traffic.seconds).sum())
    return np.asarray(max(total, 0.0) * _shares(np.maximum(between - running * traffic.seconds, 0.0)))


def usual_pace(traffic: Traffic) -> float:
    """Return the median over the intervals of the mean time between two tokens, in seconds, weighted by how many there were."""
    count, sums = traffic.counts["inter_token_seconds"], traffic.sums["inter_token_seconds"]
    some = count > 0
    if not some.any():
        return 0.0
    means, weights = sums[some] / count[some], count[some]
    order = np.argsort(means)
    middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return float(means[order][min(middle, len(order) - 1)])


def _engines(traffic: Traffic, away: npt.NDArray[np.bool_]) -> dict[str, Vector]:
    """Return engine-seconds by state; an interval without an answer that belongs to no start is unexplained."""
    if traffic.engine_states:
        return _recorded(traffic, away)
    wall = traffic.seconds * traffic.engines
    zero = np.zeros_like(wall)
    gone = ~traffic.answered
    running, waiting = traffic.gauges.get("requests_running"), traffic.gauges.get("requests_waiting")
    busy = _busy(traffic, wall)
    starved = zero
    if running is not None and waiting is not None:
        starved = np.where((running == 0) & (waiting >= 1), wall - busy, 0.0)
    states = {"busy": busy, "starved": starved, "idle": wall - busy - starved}
    states = {state: np.where(gone, 0.0, seconds) for state, seconds in states.items()}
    states["cold_start"] = np.where(gone & away, wall, 0.0)
    states["unexplained"] = np.where(gone & ~away, wall, 0.0)
    return {state: states[state] for state in ENGINE_STATES}


def _recorded(traffic: Traffic, away: npt.NDArray[np.bool_]) -> dict[str, Vector]:
    """Return the engines' seconds by records; without an engine the time belongs to a start that follows."""
    states = traffic.engine_states
    missing = np.maximum(traffic.seconds * traffic.engines - sum(states.values()), 0.0)
    gone = ~traffic.answered & away
    return states | {
        "cold_start": states["cold_start"] + np.where(gone, missing, 0.0),
        "unexplained": states["unexplained"] + np.where(gone, 0.0, missing),
    }


def _busy(traffic: Traffic, wall: Vector) -> Vector:
    """Return the engines' busy seconds: iterations times their duration, else the samples with running requests."""
    iterations, running = traffic.counts.get("iteration_tokens"), traffic.gauges.get("requests_running")
    if iterations is not None and "inter_token_seconds" in traffic.sums and traffic.count("inter_token_seconds"):
        count = traffic.counts["inter_token_seconds"]
        pace = np.where(count > 0, traffic.sums["inter_token_seconds"] / np.maximum(count, 1.0), usual_pace(traffic))
        return np.minimum(iterations * pace, wall)
    if running is not None:
        return np.minimum(running, 1.0) * wall
    return np.asarray(np.minimum(traffic.sums.get("request_seconds", np.zeros_like(wall)), wall))
