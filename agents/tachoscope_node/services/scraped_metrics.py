"""What an inference server said, as points of our metrics. Knows nothing of where it was read.

Counters are passed on as the server has them: when it is restarted they begin at 0 again, as readers of Prometheus's and
OpenTelemetry's counters expect; `tachoscope_server_start_time_seconds` says when that was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from tachoscope_core.metrics import serving as names
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.servers.snapshot import Buckets, EngineState, Snapshot, together
from tachoscope_service.metrics.family import Family, Histogram, Point

METRICS = (
    names.REQUESTS,
    names.REQUEST_SECONDS,
    names.FIRST_TOKEN_SECONDS,
    names.INTER_TOKEN_SECONDS,
    names.QUEUE_SECONDS,
    names.REQUEST_TIME_SECONDS,
    names.REQUEST_TOKENS,
    names.REQUESTS_RUNNING,
    names.REQUESTS_WAITING,
    names.REQUEST_PREEMPTIONS,
    names.KV_CACHE_USAGE,
    names.ENGINE_ITERATIONS,
    names.SERVER_UP,
    names.SERVER_START,
)
_HISTOGRAMS = {
    "request_seconds": names.REQUEST_SECONDS,
    "first_token_seconds": names.FIRST_TOKEN_SECONDS,
    "inter_token_seconds": names.INTER_TOKEN_SECONDS,
    "queue_seconds": names.QUEUE_SECONDS,
}
_STATES = {"queue_seconds": "queued", "prefill_seconds": "prefill", "decode_seconds": "decode"}
_GAUGES = {
    "requests_running": names.REQUESTS_RUNNING,
    "requests_waiting": names.REQUESTS_WAITING,
    "kv_cache_usage_ratio": names.KV_CACHE_USAGE,
}
_TOKENS = {"prompt_tokens_total": "in", "generation_tokens_total": "out"}
_MODEL_CHARACTERS = 200
"""A longer name of a model is cut: it is a label, and foreign input."""
_MOST_COUNT = 2.0**53
"""Up to which a floating-point number tells one from the next; a server that counts more lies, and OTLP has 64 bits."""

MetricPoint = tuple[Metric, Point]
Unexplained = dict[str, tuple[float, float]]
"""By model: seconds of its requests, and those of them that no state holds."""


def points(service: str, look: Snapshot, unexplained: Unexplained) -> list[MetricPoint]:
    """Return the points of an answered look.

    Args:
        unexplained: as the last look at this server left it, and this one leaves it.
    """
    found: list[MetricPoint] = []
    states = by_model(look)
    last = dict(unexplained)
    unexplained.clear()
    for model, state in states.items():
        labels = (service, model, "")  # a server's page does not say the model's version
        found += [(names.REQUESTS, ((*labels, outcome), count)) for outcome, count in state.outcomes.items()]
        for name, metric in _HISTOGRAMS.items():
            if name in state.histograms:
                found.append((metric, (labels, in_our_buckets(state.histograms[name], metric.buckets))))
        if "request_seconds" in state.histograms:
            seconds = request_states(state, last.get(model, (0.0, 0.0)))
            unexplained[model] = state.histograms["request_seconds"].sum, seconds["unexplained"]
            found += [(names.REQUEST_TIME_SECONDS, ((*labels, name), value)) for name, value in seconds.items()]
        for name, direction in _TOKENS.items():
            if name in state.counters:
                found.append((names.REQUEST_TOKENS, ((*labels, direction), state.counters[name])))
        found += _of_the_engine((service, model), state)
    if look.started:
        found.append((names.SERVER_START, ((service,), look.started)))
    return found


def _of_the_engine(labels: tuple[str, str], state: EngineState) -> Iterator[MetricPoint]:
    for name, metric in _GAUGES.items():
        if name in state.gauges:
            yield metric, (labels, state.gauges[name])
    if "preemptions_total" in state.counters:
        yield names.REQUEST_PREEMPTIONS, (labels, state.counters["preemptions_total"])
    if "iteration_tokens" in state.histograms:
        yield names.ENGINE_ITERATIONS, (labels, state.histograms["iteration_tokens"].count)


def request_states(state: EngineState, last: tuple[float, float]) -> dict[str, float]:
    """Return the seconds of requests by ledger state, as far as the server tells them apart; the rest is unexplained.

    A request's queue may be counted before its end, and then takes from the rest of others. A counter must not fall, so that the
    rest stays until it grows again; if the requests' seconds fall the server was restarted, and it begins again.

    Args:
        last: seconds of requests, and the rest, at the look before.
    """
    whole = state.histograms["request_seconds"].sum
    found = {ours: state.histograms[name].sum for name, ours in _STATES.items() if name in state.histograms}
    least = last[1] if whole >= last[0] else 0.0
    return found | {"unexplained": max(whole - sum(found.values()), least, 0.0)}


def in_our_buckets(theirs: Buckets, bounds: Iterable[float]) -> Histogram:
    """Return a histogram with those of our bounds that theirs has as well: what lies between cannot be known."""
    found = {
        bound: count for bound in bounds for their, count in zip(theirs.bounds, theirs.counts, strict=False) if _same(bound, their)
    }
    counts = [round(min(count, _MOST_COUNT)) for count in (0.0, *found.values(), theirs.count)]
    return Histogram(tuple(after - before for before, after in pairwise(counts)), theirs.sum, tuple(found))


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9)


def by_model(look: Snapshot) -> dict[str, EngineState]:
    """Return the engines of each model as one: sums, but of ratios the mean."""
    groups: dict[str, list[EngineState]] = {}
    for engine in look.engines:
        groups.setdefault(engine.model[:_MODEL_CHARACTERS], []).append(engine)
    return {model: _as_one(model, engines) for model, engines in groups.items()}


def _as_one(model: str, engines: list[EngineState]) -> EngineState:
    histograms: dict[str, Buckets] = {}
    for engine in engines:
        for name, buckets in engine.histograms.items():
            histograms[name] = together(histograms[name], buckets) if name in histograms else buckets
    gauges = _sums(engine.gauges for engine in engines)
    for name in gauges:
        if name.endswith("_ratio"):
            gauges[name] /= sum(name in engine.gauges for engine in engines)
    return EngineState(
        model=model,
        engine="",
        gauges=gauges,
        counters=_sums(engine.counters for engine in engines),
        histograms=histograms,
        outcomes=_sums(engine.outcomes for engine in engines),
    )


def _sums(every: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in every:
        for name, value in one.items():
            found[name] = found.get(name, 0.0) + value
    return found


def families(every: Iterable[MetricPoint]) -> list[Family]:
    """Return points of several servers as families, in the order of METRICS."""
    by_metric: dict[str, list[Point]] = {metric.name: [] for metric in METRICS}
    for metric, point in every:
        by_metric[metric.name].append(point)
    return [Family(metric, by_metric[metric.name]) for metric in METRICS]
