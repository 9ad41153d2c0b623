"""The metrics of the services on this node, from what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tachoscope_core.metrics import serving as names
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.services.state import Engines, EngineState, Requests, Service
from tachoscope_service.metrics.buckets import Buckets
from tachoscope_service.metrics.family import Family, Histogram, Point


def families(services: Iterable[Service]) -> list[Family]:
    """Return the families of all services; a value that is not known has no point."""
    services = list(services)
    requests = [
        ((service.name, model, version), sums)
        for service in services
        for model, versions in service.requests.items()
        for version, sums in versions.items()
    ]
    engines = [((service.name, model), sums) for service in services for model, sums in service.engines.items()]
    started = {
        service.name: [process.began_unix for process in service.answering() if not process.ended]
        for service in services
        if service.processes
    }
    return [
        Family(names.REQUESTS, [((*of, how), float(number)) for of, sums in requests for how, number in sums.outcomes.items()]),
        Family(names.REQUESTS_JOINT, [((*of, met), float(number)) for of, sums in requests for met, number in sums.joint.items()]),
        Family(
            names.REQUEST_TIME_SECONDS, [((*of, state), spent) for of, sums in requests for state, spent in sums.states.items()]
        ),
        *_histograms(requests),
        Family(
            names.REQUEST_TOKENS,
            [
                ((*of, direction), float(tokens))
                for of, sums in requests
                for direction, tokens in zip(names.DIRECTIONS, (sums.tokens_in, sums.tokens_out), strict=True)
            ],
        ),
        Family(names.ENGINE_TIME_SECONDS, [((*of, state), time) for of, sums in engines for state, time in sums.states.items()]),
        Family(names.ENGINE_ITERATIONS, [(of, float(sums.iterations)) for of, sums in engines]),
        Family(names.ENGINE_PROMPT_TOKENS, [(of, float(sums.prompt_tokens)) for of, sums in engines]),
        Family(names.REQUEST_PREEMPTIONS, list(_preemptions(services))),
        *_gauges(services),
        Family(names.SERVER_UP, [((service,), float(bool(times))) for service, times in started.items()]),
        Family(names.SERVER_START, [((service,), max(times)) for service, times in started.items() if times]),
    ]


def _histograms(requests: Iterable[tuple[tuple[str, str, str], Requests]]) -> Iterator[Family]:
    parts: dict[Metric, Callable[[Requests], Buckets]] = {
        names.REQUEST_SECONDS: lambda sums: sums.seconds,
        names.FIRST_TOKEN_SECONDS: lambda sums: sums.first_token,
        names.INTER_TOKEN_SECONDS: lambda sums: sums.inter_token,
        names.QUEUE_SECONDS: lambda sums: sums.queue,
    }
    for metric, part in parts.items():
        yield Family(metric, [(of, Histogram(tuple(part(sums).counts), part(sums).sum)) for of, sums in requests])


def _preemptions(services: Iterable[Service]) -> Iterator[Point]:
    """Yield what engines or requests say: they may both speak of the same, so the larger counts."""
    for service in services:
        for model in sorted({*service.engines, *service.requests}):
            by_requests = sum(sums.preemptions for sums in service.requests.get(model, {}).values())
            by_engines = service.engines.get(model, Engines()).preemptions
            if model in service.engines or by_requests:
                yield (service.name, model), float(max(by_engines, by_requests))


def _gauges(services: Iterable[Service]) -> Iterator[Family]:
    looks: dict[tuple[str, str], list[EngineState]] = {}
    for service in services:
        for process in service.alive():
            for look in process.engines.values():
                looks.setdefault((service.name, look.model), []).append(look)
    running = {of: [value for look in rows if (value := look.running) is not None] for of, rows in looks.items()}
    waiting = {of: [value for look in rows if (value := look.waiting) is not None] for of, rows in looks.items()}
    used = {of: [value for look in rows if (value := look.kv_cache_usage_ratio) is not None] for of, rows in looks.items()}
    yield Family(names.REQUESTS_RUNNING, [(of, sum(values)) for of, values in running.items() if values])
    yield Family(names.REQUESTS_WAITING, [(of, sum(values)) for of, values in waiting.items() if values])
    yield Family(names.KV_CACHE_USAGE, [(of, sum(values) / len(values)) for of, values in used.items() if values])
