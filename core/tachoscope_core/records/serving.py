"""What a record of a request or an engine means, for all who sum them: records are foreign input, and may say anything."""

from __future__ import annotations

from tachoscope_core.metrics.serving import ENGINE_STATES, INTER_TOKEN_BUCKETS, REQUEST_STATES
from tachoscope_core.records.records import EngineWindow, Heartbeat, RequestDone

MOST_SECONDS = 1e6
MOST_COUNT = 1 << 40
IN_FLIGHT = "requests_in_flight"
"""The signal of a heartbeat that says how many requests the process has."""


def plausible(row: RequestDone | EngineWindow) -> bool:
    """Return whether the times and counts of a record can be."""
    if isinstance(row, RequestDone):
        times = [row.wall_seconds, row.inter_token_seconds, row.first_token_seconds or 0.0, *row.phase_seconds.values()]
        counts = [row.tokens_in, row.tokens_out, row.inter_token_count, row.preemptions, *row.inter_token_buckets]
        if len(row.inter_token_buckets) > len(INTER_TOKEN_BUCKETS) + 1 or sum(row.inter_token_buckets) > row.inter_token_count:
            return False
    else:
        times = [row.window_seconds, row.iteration_seconds, *row.state_seconds.values()]
        times += [value for value in (row.running_mean, row.waiting_mean, row.kv_cache_usage_ratio) if value is not None]
        counts = [row.iterations, row.prompt_tokens, row.generation_tokens, row.preemptions]
    return min(times) >= 0.0 and max(times) < MOST_SECONDS and min(counts) >= 0 and max(counts) < MOST_COUNT


def request_states(request: RequestDone) -> dict[str, float]:
    """Return a request's seconds by ledger state; they add up to its wall time, of which phases never have more."""
    return _states(request.phase_seconds, REQUEST_STATES, request.wall_seconds)


def engine_states(window: EngineWindow) -> dict[str, float]:
    """Return an engine's seconds by ledger state; they add up to the window."""
    return _states(window.state_seconds, ENGINE_STATES, window.window_seconds)


def _states(said: dict[str, float], states: tuple[str, ...], wall: float) -> dict[str, float]:
    known = {state: said.get(state, 0.0) for state in states if state != "unexplained"}
    total = sum(known.values())
    if total > wall:
        known = {state: seconds * (wall / total) for state, seconds in known.items()}
    return known | {"unexplained": max(wall - total, 0.0)}


def was_worked_on(request: RequestDone) -> bool:
    """Return whether a request was more than refused at once: it has an answer, a token, or time in a phase."""
    return request.outcome == "ok" or request.first_token_seconds is not None or any(request.phase_seconds.values())


def in_flight(beat: Heartbeat) -> int | None:
    """Return how many requests a process says that it has; None: it does not serve any."""
    said = beat.signals.get(IN_FLIGHT)
    return None if said is None else round(max(0.0, min(said, MOST_SECONDS)))


def was_in_flight(request: RequestDone, time: float) -> bool:
    """Return whether a request had arrived by that time and not ended: who counted it then must not count it again."""
    return request.time - request.wall_seconds <= time < request.time
