"""Makes a model of an engine and of its traffic from a recording, to be replayed under other conditions.

What the recording tells and what is assumed is said with it; where it tells too little, `NotMeasuredError` says what to record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tachoscope_analyzers.serving.capacity import engine_intervals as intervals_module
from tachoscope_analyzers.serving.capacity import iteration_cost_fit as iteration_cost
from tachoscope_analyzers.serving.capacity import workload
from tachoscope_analyzers.serving.capacity.engine_intervals import Intervals
from tachoscope_analyzers.serving.capacity.engine_simulator import Counts, Engine, IterationCost, Load, Replayed, Vector, replay
from tachoscope_analyzers.serving.capacity.iteration_cost_fit import IterationCostFit
from tachoscope_analyzers.serving.capacity.workload import Workload
from tachoscope_analyzers.serving.records.traffic import Traffic
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import EngineWindow, RequestDone

MAX_RUNNING = 256
MAX_ITERATION_TOKENS = 2048
"""vLLM's defaults, where the recording does not show the limit: https://docs.vllm.ai/en/stable/configuration/optimization.html"""
_MAX_REPLAYED_REQUESTS, _MAX_REPLAYED_ITERATIONS = 6000, 20_000
"""Of a longer recording the busiest stretch of this size is replayed to find the costs."""
_KV_FULL = 0.9
_SWAPS = 10
_NO_QUEUE = 0.5
_MIN_FREE = 3
RECORD = "tachoscope serving URL --for 2m --save FILE, under steady traffic at about two thirds of what the server takes"
STEADY = "record steady traffic, or choose a part with --for, such as --for 5m"


class NotMeasuredError(TachoscopeError):
    """The recording cannot tell it."""


@dataclass(frozen=True, slots=True)
class Model:
    """An engine and its traffic.

    Attributes:
        engine: one replica, as recorded. draws: costs that explain the recording as well as the engine's.
        replicas: recorded. known_output_tokens: of an iteration; up to there the cost was seen.
        checks: recorded and replayed mean seconds by signal: how far the model is from what it was made from.
        measured, assumed: sentences.
    """

    engine: Engine
    draws: tuple[IterationCost, ...]
    workload: Workload
    replicas: int
    known_output_tokens: float
    checks: dict[str, tuple[float, float]]
    measured: tuple[str, ...]
    assumed: tuple[str, ...]


def of_traffic(traffic: Traffic, *, max_running: int | None = None) -> Model:
    """Return the model of a server that was looked at.

    Args:
        max_running: requests that an engine works on at a time; default: as recorded, if the limit was reached.

    Raises:
        NotMeasuredError: its page lacks what is needed, or there was too little traffic.
    """
    counted = intervals_module.of_traffic(traffic)
    if counted is None:
        raise NotMeasuredError(f"the page of {traffic.server} does not count iterations and times between tokens", fix=RECORD)
    requests = workload.of_traffic(traffic)
    if requests is None:
        raise NotMeasuredError("no request was answered in the recording, or the server does not count tokens", fix=RECORD)
    came = workload.arrivals_by_interval(traffic)
    assert came is not None  # there are requests
    arrivals = came[traffic.answered] / traffic.engines
    stretch = _stretch(arrivals, counted.iterations)
    counted, arrivals = _part(counted, stretch), arrivals[stretch]
    loads = [_as_recorded(arrivals, counted, requests, seed) for seed in range(iteration_cost.REPLAYS)]
    if min(len(load.arrivals) for load in loads) == 0:
        raise NotMeasuredError("no request was answered in the recording", fix=RECORD)
    _check_load(workload.load_change(requests, counted.seconds, arrivals, counted.prompt_tokens, counted.output_tokens))
    engine, measured, assumed = _limits(traffic, max_running)

    def replayed(cost: IterationCost, times: int = iteration_cost.REPLAYS) -> list[Intervals]:
        done = ((load, replay(load, replace(engine, cost=cost))) for load in loads[:times])
        return [intervals_module.of_replay(load, one, counted) for load, one in done]

    try:
        fit = iteration_cost.matched(counted, replayed)
    except ValueError as error:
        raise NotMeasuredError(f"the recording does not determine the cost of an iteration: {error}", fix=RECORD) from None
    engine = replace(engine, cost=fit.cost)
    again = [replay(load, engine) for load in loads]
    front = _front_seconds(traffic, again, float(counted.seconds.sum()))
    if front is None:
        assumed = (*assumed, "no time outside of the engine (HTTP, tokenizer): the recording has no traffic without a queue")
    else:
        measured = (*measured, f"{front * 1e3:.1f} ms before the first token are spent outside of the engine (HTTP, tokenizer)")
    return Model(
        engine=replace(engine, front_seconds=front or 0.0),
        draws=fit.draws,
        workload=requests,
        replicas=traffic.engines,
        known_output_tokens=fit.output_tokens,
        checks=_checks(counted, replayed(fit.cost)),
        measured=(_cost_words(fit), *requests.measured, *measured),
        assumed=(*requests.assumed, *assumed),
    )


def of_records(requests: Sequence[RequestDone], windows: Sequence[EngineWindow], *, max_running: int | None = None) -> Model:
    """Return the model of a server that recorded its requests and its engines' windows itself.

    Raises:
        NotMeasuredError: one of them is missing, or there is too little.
    """
    counted, came = intervals_module.of_windows(windows), workload.of_requests(requests)
    if counted is None:
        fix = "record the engine's iterations (EngineWindow), or the server's metrics page"
        raise NotMeasuredError("no record reports an engine's iterations", fix=fix)
    if came is None:
        raise NotMeasuredError("no record reports requests with their tokens", fix="run the server under the probe")
    if any(window.preemptions for window in windows):
        fix = "record it with a larger KV cache, or at less load"
        raise NotMeasuredError("requests were preempted, and no record has the size of the KV cache", fix=fix)
    try:
        fit = iteration_cost.fitted(counted)
    except ValueError as error:
        raise NotMeasuredError(f"the records do not determine the cost of an iteration: {error}", fix=RECORD) from None
    engines = len({(window.writer, window.engine) for window in windows if window.iterations})
    full = [w.running_mean for w in windows if w.running_mean and w.waiting_mean and w.waiting_mean >= 1]
    told = max((window.capacity for window in windows), default=0)
    engine, measured, assumed = _engine(max_running or told or None, max(full, default=0.0), 0.0, 0.0)
    if told and max_running is None:
        measured = (f"{told} requests run at a time: the engine's capacity", *measured)
    rows = sorted((row for row in requests if row.tokens_out > 0), key=lambda row: row.time - row.wall_seconds)
    times = np.array([row.time - row.wall_seconds for row in rows])
    edges = np.linspace(times[0], times[-1], max(int(times[-1] - times[0]), 1) + 1)
    columns = (np.histogram(times, edges, weights=tokens)[0] for tokens in (None, came.prompt_tokens, came.output_tokens))
    _check_load(workload.load_change(came, np.diff(edges), *(column.astype(np.float64) for column in columns)))
    load = Load((times - times[0])[::engines], came.prompt_tokens[::engines], came.output_tokens[::engines])
    engine = replace(engine, cost=fit.cost)
    first = np.array([row.first_token_seconds for row in rows if row.first_token_seconds is not None])
    again = replay(load, engine)
    front = max(0.0, float(np.median(first) - np.median(again.first_token_seconds))) if len(first) else 0.0
    checks = {"first token": (float(first.mean()), float(again.first_token_seconds.mean()) + front)} if len(first) else {}
    return Model(
        engine=replace(engine, front_seconds=front),
        draws=fit.draws,
        workload=came,
        replicas=engines,
        known_output_tokens=fit.output_tokens,
        checks=checks,
        measured=(_cost_words(fit), *came.measured, *measured),
        assumed=(*came.assumed, *assumed),
    )


def _check_load(change: str) -> None:
    """Raise if the recording holds several loads: the knee of their mixture is that of none of them."""
    if change:
        raise NotMeasuredError(f"the knee is not known: the load changed in the recording: {change}", fix=STEADY)


def _stretch(arrivals: Vector, iterations: Vector) -> slice:
    """Return the consecutive intervals with most requests that are few enough to be replayed often."""
    best, most, first = slice(0, 1), -1.0, 0
    for last in range(len(arrivals)):
        while first < last and (
            arrivals[first : last + 1].sum() > _MAX_REPLAYED_REQUESTS
            or iterations[first : last + 1].sum() > _MAX_REPLAYED_ITERATIONS
        ):
            first += 1
        if (here := arrivals[first : last + 1].sum()) > most:
            best, most = slice(first, last + 1), here
    return best


def _part(intervals: Intervals, stretch: slice) -> Intervals:
    return Intervals(**{name: getattr(intervals, name)[stretch] for name in Intervals.__dataclass_fields__})


def _as_recorded(arrivals: Vector, counted: Intervals, requests: Workload, seed: int) -> Load:
    """Return requests that came when the recorded did: as many in each interval, somewhere in it, with as many tokens together."""
    randomly = np.random.default_rng(seed)
    whole = np.floor(np.cumsum(arrivals) + 1e-6).astype(np.int64)
    where = np.repeat(np.arange(len(arrivals)), np.diff(whole, prepend=0))
    times = counted.starts[where] + randomly.random(len(where)) * counted.seconds[where]
    drawn = requests.load(1.0, len(where), seed)
    outputs = counted.output_tokens.sum() / max(drawn.output_tokens.sum(), 1)
    prompts = _placed(drawn.prompt_tokens, where, counted.prompt_tokens, randomly)
    order = np.argsort(times)
    return Load(times[order], prompts[order], np.maximum(np.rint(drawn.output_tokens * outputs), 1).astype(np.int64)[order])


def _placed(tokens: Counts, where: Counts, recorded: Vector, randomly: np.random.Generator) -> Counts:
    """Reorder values, by swaps, so that each interval's sum is near the recorded one."""
    values, places = (tokens * max(recorded.sum(), 1.0) / max(tokens.sum(), 1)).tolist(), where.tolist()
    over = (np.bincount(where, values, len(recorded)) - recorded).tolist()
    for one, other in randomly.integers(0, max(len(values), 1), (_SWAPS * len(values), 2)).tolist():
        here, there, less = places[one], places[other], values[one] - values[other]
        # Moving `less` from one interval's sum to the other's makes the squares of what they are off by smaller, or not.
        if here != there and less * (over[here] - over[there] - less) > 0:
            values[one], values[other] = values[other], values[one]
            over[here] -= less
            over[there] += less
    found: Counts = np.maximum(np.rint(values), 1).astype(np.int64)
    return found


def _limits(traffic: Traffic, max_running: int | None) -> tuple[Engine, tuple[str, ...], tuple[str, ...]]:
    """Return the engine without its cost, and what of it is measured and what assumed."""
    gauges, iterations = traffic.gauges, traffic.counts["iteration_tokens"]
    nothing = np.zeros(len(iterations))
    queued = gauges.get("requests_waiting", nothing) >= traffic.engines
    queued &= gauges.get("kv_cache_usage_ratio", nothing) < _KV_FULL
    queued &= iterations >= intervals_module.MIN_ITERATIONS
    made = traffic.counters["generation_tokens_total"][queued] / np.maximum(iterations[queued], 1.0)
    full = float(made.max()) if int(queued.sum()) > 1 else 0.0
    tokens = traffic.totals["iteration_tokens"]
    filled = np.diff(np.concatenate([[0.0], tokens.counts[:-1]])) > 0
    largest = max((bound for bound, some in zip(tokens.bounds, filled, strict=True) if some), default=0.0)
    return _engine(max_running, full, largest, traffic.kv_cache_tokens)


def _engine(
    max_running: int | None, full: float, largest: float, kv_cache_tokens: float
) -> tuple[Engine, tuple[str, ...], tuple[str, ...]]:
    measured, assumed = list[str](), list[str]()
    if max_running is None and full >= 1:
        max_running = round(full)
        measured.append(f"{max_running} requests run at a time: so many did while others waited")
    elif max_running is None:
        max_running = MAX_RUNNING
        assumed.append(f"up to {MAX_RUNNING} requests run at a time: the limit was not reached in the recording (--max-running)")
    if kv_cache_tokens:
        measured.append(f"the KV cache holds {kv_cache_tokens:,.0f} tokens")
    else:
        assumed.append("the KV cache is never full: its size is not recorded")
    budget = max(MAX_ITERATION_TOKENS, int(largest))
    assumed.append(f"an iteration has at most {budget} tokens, prompts are computed in the order of arrival")
    return Engine(IterationCost(0.0, 0.0, 0.0), max_running, budget, kv_cache_tokens), tuple(measured), tuple(assumed)


def _front_seconds(traffic: Traffic, again: Sequence[Replayed], seconds: float) -> float | None:
    """Return what requests spend outside of the engine: what the time to the first token has above queue and prefill.

    A request that comes during an iteration waits for its end, which the replay has in its queue and servers have not. None: there
    were no intervals without a queue; behind one the front waits for the engine too.
    """
    parts = ("first_token_seconds", "queue_seconds", "prefill_seconds")
    if any(part not in traffic.counts for part in parts):
        return None
    free = traffic.gauges.get("requests_waiting", np.zeros(len(traffic.seconds))) < _NO_QUEUE
    free &= traffic.answered & (traffic.counts["first_token_seconds"] > 0)
    if int(free.sum()) < _MIN_FREE:
        return None
    first, queue, prefill = (traffic.sums[part][free].sum() / max(traffic.counts[part][free].sum(), 1.0) for part in parts)
    rest = np.mean([(one.iterations.seconds**2) @ one.iterations.times / (2 * seconds) for one in again])
    return max(0.0, float(first - queue - prefill - rest))


def _checks(counted: Intervals, again: Sequence[Intervals]) -> dict[str, tuple[float, float]]:
    """Return what was recorded and what the replays make of it, means in seconds."""

    def means(rows: Sequence[Intervals], name: str) -> float:
        total = sum(float(getattr(row, f"{name}_seconds").sum()) for row in rows)
        return total / max(sum(float(getattr(row, f"{name}_counts").sum()) for row in rows), 1.0)

    return {name: (means([counted], part), means(again, part)) for name, part in (("inter token", "gap"), ("prefill", "prefill"))}


def _cost_words(fit: IterationCostFit) -> str:
    cost = fit.cost
    return (
        f"an iteration takes {cost.base_seconds * 1e3:.2f} ms, and {cost.prompt_token_seconds * 1e6:.0f} µs for each prompt token, "
        f"{cost.output_token_seconds * 1e6:.0f} µs for each output token (seen with up to {fit.output_tokens:.0f} of them)"
    )
