"""How much traffic an engine takes: latency and throughput over the request rate, the knee where the objectives are no longer met,
and what moves it. Replays the recorded traffic at other rates on the recorded engine, and on engines that are changed in one thing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite

import numpy as np

from tachoscope_analyzers.data.prices import Price
from tachoscope_analyzers.serving.capacity.engine_model import Model
from tachoscope_analyzers.serving.capacity.engine_simulator import Engine, Load, Replayed, Vector, replay
from tachoscope_analyzers.serving.capacity.objectives import Objective
from tachoscope_analyzers.serving.capacity.workload import Workload

_MOST_REQUESTS, _LEAST_REQUESTS, _OUTPUT_TOKENS = 1500, 500, 200_000
"""Of one replay: so many requests as make these output tokens, but not more or fewer than that."""
_WARM_SHARE = 0.1
"""The first requests find an empty engine and are left out."""
_SEEDS = (0, 1, 2)
_BISECTIONS = 7
_DRAWS = 12
_CURVE = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25)
"""Rates of the curve, of the knee."""
_QUEUE_LIMITS = (1, 2, 4, 8, 16, 32, 64, 128)
_OVERLOAD = 1.5
_SMALL_CHUNK = 256
_LEAST_LOAD = 0.6
"""Of a real vLLM the knee was 22 % too low from a recording at 58 % of what it said, and 3 % too high from one at 70 %."""

OnStep = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Point:
    """What happens at a rate.

    Attributes:
        rate: requests a second to one replica. output_tokens_per_second: that it makes.
        seconds: quantiles by name, such as `ttft_p95`; infinite where so many requests are refused.
        met: all objectives are. running: requests that decode in an iteration, mean.
    """

    rate: float
    output_tokens_per_second: float
    seconds: dict[str, float]
    met: bool
    running: float


@dataclass(frozen=True, slots=True)
class CapacityLever:
    """What a change does to the knee, for all replicas together: `what` is changed, and what is assumed of it."""

    what: str
    knee: float
    ratio: float
    assumed: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """What refusing requests does at a rate above the knee: share of those that came which had their first token in time."""

    rate: float
    in_time_without: float
    in_time_with: float
    queue_limit: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica takes.

    Attributes:
        knee: highest rate, in requests a second, at which the objectives are met; 0: they are not met even by one request alone.
        knee_interval: of 95 %, over what the recording leaves open and over the chance of arrivals and lengths.
        limit: the objective that is broken first above the knee. saturation: the rate at which the engine is never idle.
        recorded_rate: of one replica. forecast_replicas: for `forecast_rate`, and with the lower end of the knee's interval.
        cost_per_million_tokens: output tokens at the knee.
        light_load: the recorded load is at most this share of the knee, too light to tell it (the knee is then 0); else 0.
    """

    objectives: tuple[Objective, ...]
    model: Model
    recorded_rate: float
    saturation: float
    knee: float
    knee_interval: tuple[float, float]
    limit: str
    knee_point: Point | None
    curve: tuple[Point, ...]
    levers: tuple[CapacityLever, ...]
    admission: Admission | None
    forecast_rate: float | None = None
    forecast_replicas: tuple[int, int] | None = None
    price: Price | None = None
    cost_per_million_tokens: float | None = None
    light_load: float = 0.0


def capacity(
    model: Model,
    objectives: Sequence[Objective],
    *,
    forecast_rate: float | None = None,
    price: Price | None = None,
    devices: int = 1,
    on_step: OnStep = lambda: None,
) -> Capacity:
    """Return what an engine takes of its traffic.

    Args:
        forecast_rate: requests a second that are to be served. price: of a device, `devices` of which make a replica.
        on_step: called `STEPS` times on the way.
    """
    engine, requests = model.engine, model.workload
    most = saturation(engine, requests)
    found = knee(engine, requests, objectives)
    on_step()
    if 0.0 < requests.rate / model.replicas < _LEAST_LOAD * found:
        return _not_yet_known(model, objectives, most, found)
    at = point(engine, requests, found, objectives) if found else None
    interval = _interval(model, objectives, found, on_step)
    rates = [found * share for share in _CURVE] if found else [most * share for share in _CURVE]
    curve = tuple(point(engine, requests, rate, objectives) for rate in rates)
    on_step()
    levers = _levers(engine, requests, objectives, found, on_step) if found else ()
    replicas = None
    if forecast_rate and found:
        replicas = _replicas(engine, requests, objectives, forecast_rate, found), ceil(forecast_rate / max(interval[0], 1e-9))
    tokens = at.output_tokens_per_second if at else 0.0
    return Capacity(
        objectives=tuple(objectives),
        model=model,
        recorded_rate=requests.rate / model.replicas,
        saturation=most,
        knee=found,
        knee_interval=interval,
        limit=_limit(engine, requests, objectives, found),
        knee_point=at,
        curve=curve,
        levers=levers,
        admission=_admission(engine, requests, objectives, found) if found else None,
        forecast_rate=forecast_rate,
        forecast_replicas=replicas,
        price=price,
        cost_per_million_tokens=price.per_hour * devices / (tokens * 3600) * 1e6 if price and tokens else None,
    )


def _not_yet_known(model: Model, objectives: Sequence[Objective], most: float, found: float) -> Capacity:
    """Return that the recorded load was too light: how an iteration grows up to the knee was not seen."""
    rate = model.workload.rate / model.replicas
    return Capacity(
        objectives=tuple(objectives),
        model=model,
        recorded_rate=rate,
        saturation=most,
        knee=0.0,
        knee_interval=(0.0, 0.0),
        limit="",
        knee_point=None,
        curve=(),
        levers=(),
        admission=None,
        light_load=rate / found,
    )


STEPS = 2 + _DRAWS + 5


def _count(requests: Workload) -> int:
    return int(np.clip(_OUTPUT_TOKENS / requests.output_tokens.mean(), _LEAST_REQUESTS, _MOST_REQUESTS))


def saturation(engine: Engine, requests: Workload) -> float:
    """Return the rate of answers, in requests a second, of an engine for which enough requests always wait."""
    count = _count(requests)
    load = requests.load(1.0, count, _SEEDS[0])
    all_at_once = Load(np.zeros(count), load.prompt_tokens, load.output_tokens)
    ends = np.sort(replay(all_at_once, replace(engine, queue_limit=0)).request_seconds)
    first, last = count // 5, count * 4 // 5  # neither the empty engine nor the last few
    return float((last - first) / max(ends[last] - ends[first], 1e-9))


def knee(engine: Engine, requests: Workload, objectives: Sequence[Objective], seeds: Sequence[int] = _SEEDS) -> float:
    """Return the highest rate, in requests a second, at which all objectives are met; 0: none.

    It is found by bisection. All rates have the same requests in the same order, so that chance does not move between them.
    """
    low, high = 0.0, saturation(engine, requests)
    if not point(engine, requests, high * 1e-3, objectives, seeds[:1]).met:
        return 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if point(engine, requests, middle, objectives, seeds).met else (low, middle)
    return low


def point(engine: Engine, requests: Workload, rate: float, objectives: Sequence[Objective], seeds: Sequence[int] = _SEEDS) -> Point:
    """Return latencies in seconds and the objectives met at so many requests a second, over a replay for each seed."""
    loads = [requests.load(rate, _count(requests), seed) for seed in seeds]
    done = [replay(load, engine) for load in loads]
    values = _values(loads, done)
    shown = {(signal, percent) for signal in ("ttft", "itl") for percent in (50.0, 95.0, 99.0)}
    shown |= {(objective.signal, objective.percent) for objective in objectives}
    seconds = {f"{signal}_p{percent:g}": _quantile(*values[signal], percent / 100) for signal, percent in sorted(shown)}
    tokens = sum(one.output_tokens for one in done) / sum(one.end - load.arrivals[0] for load, one in zip(loads, done, strict=True))
    counts = np.concatenate([one.iterations.output_tokens for one in done])
    times = np.concatenate([one.iterations.seconds * one.iterations.times for one in done])
    met = all(seconds[objective.name] <= objective.seconds for objective in objectives)
    return Point(rate, float(tokens), seconds, met, float(counts @ times / max(times.sum(), 1e-12)))


def _values(loads: Sequence[Load], done: Sequence[Replayed]) -> dict[str, tuple[Vector, Vector]]:
    """Return the values of each signal after the warm-up, with their frequencies."""
    parts: dict[str, list[Vector]] = {"ttft": [], "tpot": [], "e2e": [], "queue": []}
    gaps, counts = list[Vector](), list[Vector]()
    for load, one in zip(loads, done, strict=True):
        warm = slice(int(len(load.arrivals) * _WARM_SHARE), None)
        parts["ttft"].append(one.first_token_seconds[warm])
        parts["tpot"].append(one.output_token_seconds[warm][np.isfinite(one.output_token_seconds[warm])])
        parts["e2e"].append(one.request_seconds[warm])
        parts["queue"].append(one.queue_seconds[warm])
        gaps.append(one.gap_seconds)
        counts.append(one.gap_counts)
    found = {name: np.concatenate(rows) for name, rows in parts.items()}
    each = {name: (rows, np.ones(len(rows))) for name, rows in found.items()}
    return each | {"itl": (np.concatenate(gaps), np.concatenate(counts))}


def _quantile(values: Vector, counts: Vector, share: float) -> float:
    """Return the smallest value that at least `share` of all do not exceed; 0 of none."""
    if not len(values):
        return 0.0
    order = np.argsort(values)
    reached = np.searchsorted(np.cumsum(counts[order]), share * counts.sum() - 1e-9)
    return float(values[order[min(int(reached), len(order) - 1)]])


def _interval(model: Model, objectives: Sequence[Objective], found: float, on_step: OnStep) -> tuple[float, float]:
    """Return the interval of the knee's rate over draws of costs and requests."""
    randomly = np.random.default_rng(0)
    costs = [model.draws[index] for index in randomly.permutation(len(model.draws))[:_DRAWS]]
    knees = [found]
    for number, cost in enumerate(costs):
        knees.append(knee(replace(model.engine, cost=cost), model.workload, objectives, seeds=(100 + number,)))
        on_step()
    low, high = np.quantile(knees, [0.025, 0.975])
    return min(float(low), found), max(float(high), found)


def _limit(engine: Engine, requests: Workload, objectives: Sequence[Objective], found: float) -> str:
    """Return the objective exceeded most just above the knee; empty: none, the engine is saturated."""
    above = point(engine, requests, max(found * 1.03, saturation(engine, requests) * 1e-3), objectives)
    broken = [one for one in objectives if above.seconds[one.name] > one.seconds]
    return max(broken, key=lambda one: above.seconds[one.name] / one.seconds).name if broken else ""


def _levers(
    engine: Engine, requests: Workload, objectives: Sequence[Objective], found: float, on_step: OnStep
) -> tuple[CapacityLever, ...]:
    """Return single changes and their effect on the knee."""
    cost, most, tokens = engine.cost, engine.max_running, engine.max_iteration_tokens
    half, chunk = max(most // 2, 1), max(_SMALL_CHUNK, tokens // 4)
    lighter = replace(cost, base_seconds=cost.base_seconds / 2)
    reading = "an iteration's base time is the reading of the weights and halves; nothing else changes"
    changed: tuple[tuple[str, Engine, str], ...] = (
        (f"at most {most * 2} requests at a time, for {most}", replace(engine, max_running=most * 2), ""),
        (f"at most {half} requests at a time, for {most}", replace(engine, max_running=half), ""),
        (f"at most {chunk} tokens in an iteration, for {tokens}", replace(engine, max_iteration_tokens=chunk), ""),
        ("weights of half the bytes", replace(engine, cost=lighter), reading),
    )
    here = knee(engine, requests, objectives, _SEEDS[:1])
    levers = []
    for what, other, assumed in changed:
        ratio = knee(other, requests, objectives, _SEEDS[:1]) / here
        levers.append(CapacityLever(what, found * ratio, ratio, assumed))
        on_step()
    ratio = 2 * knee(engine, _dealt(requests, 2), objectives, _SEEDS[:1]) / here
    on_step()
    return (*levers, CapacityLever("two replicas for each", found * ratio, ratio, "requests are dealt out in turn"))


def _dealt(requests: Workload, replicas: int) -> Workload:
    """Return what one of so many replicas sees of requests that are dealt out in turn: a sum of gamma gaps is a gamma gap."""
    return replace(requests, shape=requests.shape * replicas)


def _replicas(engine: Engine, requests: Workload, objectives: Sequence[Objective], rate: float, found: float) -> int:
    """Return the replicas that meet the objectives; dealing out flattens bursts, so fewer than by the knee may do."""
    count = ceil(rate / found)
    while count > 1 and point(engine, _dealt(requests, count - 1), rate / (count - 1), objectives).met:
        count -= 1
    return count


def _admission(engine: Engine, requests: Workload, objectives: Sequence[Objective], found: float) -> Admission | None:
    """Return the benefit of rejecting requests above the knee; None without an objective on the first token."""
    limits = [one.seconds for one in objectives if one.signal == "ttft"]
    if not limits:
        return None
    rate = found * _OVERLOAD
    loads = [requests.load(rate, _count(requests), seed) for seed in _SEEDS]

    def in_time(limit: int) -> float:
        done = [replay(load, replace(engine, queue_limit=limit)) for load in loads]
        return float(np.mean([(one.first_token_seconds <= min(limits)).mean() for one in done]))

    best = max(_QUEUE_LIMITS, key=in_time)
    return Admission(rate, in_time(0), in_time(best), best)


def uncertain(found: Capacity) -> bool:
    """Return whether the recording leaves the knee open by more than a factor of 2."""
    low, high = found.knee_interval
    return found.knee > 0 and (low <= 0 or not isfinite(high) or high / low > 2)
