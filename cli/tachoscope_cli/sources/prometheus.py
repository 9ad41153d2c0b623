"""Asks a Prometheus for what it scraped of inference servers: the samples as they were, with the times of their scrapes.

https://prometheus.io/docs/prometheus/latest/querying/api/ (a range selector in an instant query gives the raw samples).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net import prometheus as prometheus_query
from tachoscope_core.servers import SERVERS, Catalogue, catalogue
from tachoscope_core.servers.metrics_page import PARTS, Sample, plausible, snapshot, spellings
from tachoscope_core.servers.snapshot import GAUGES, EngineState, Snapshot

MOST_BYTES = 32 << 20
"""About 20 hours of one engine of vLLM 0.32 (226 series), scraped every 15 s; a larger answer is refused."""
NOT_SCRAPED = "Prometheus could not scrape it"


@dataclass
class _Instance:
    """What was scraped of one server: samples by the time of the scrape, and the times of scrapes that failed."""

    scrapes: dict[float, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    failed: set[float] = field(default_factory=set)


def read(prometheus_url: str, selector: str, seconds: float) -> list[Snapshot]:
    """Return the looks of the last `seconds` at the servers of a selector, in the order of time.

    One server gives a look for each scrape. Of several, a look has for each its last scrape; the label `instance` is then a part of
    the engines' names, and counters that begin again go on from where they were.

    Args:
        prometheus_url: such as http://prometheus:9090. selector: labels of the servers, such as job="vllm", with braces or without.

    Raises:
        TachoscopeError: no answer, no Prometheus, no series of a server that is understood, or too many.
    """
    labels = selector.strip().removeprefix("{").removesuffix("}").strip().rstrip(",")
    span = f"[{max(math.ceil(seconds), 1)}s]"
    there = _names(prometheus_url, labels, span)
    known = _make(there, labels, span)
    wanted = {spelt + part: name + part for name in known.metrics() for spelt in spellings(name) for part in PARTS}
    asked = "|".join(sorted(name for name in there if name in wanted or name == "up"))
    series = _query(prometheus_url, f'{{{labels},__name__=~"{asked}"}}{span}')
    instances = _instances(series, wanted)
    if not instances:
        raise TachoscopeError(f"no series {{{labels}}} of {prometheus_url} has a value that a metric of a server can have")
    if len(instances) == 1:
        (only,) = instances.values()
        return _looks_at_one(only, known)
    return _looks_at_all(instances, known)


# --- which servers ------------------------------------------------------------------------------------------------------------


def _names(url: str, labels: str, span: str) -> set[str]:
    found = _query(url, f"count by (__name__) (last_over_time({{{labels}}}{span}))")
    names = {str(row["metric"].get("__name__", "")) for row in found}
    if not names:
        jobs = sorted({row["metric"].get("job", "") for row in _query(url, "count by (job) (up)")})
        has = f"it scrapes the jobs {', '.join(jobs[:10])}" if jobs else "it scrapes nothing now"
        raise TachoscopeError(f"{url} has no series {{{labels}}} in the last {span[1:-1]}", fix=has)
    return names


def _make(names: Iterable[str], labels: str, span: str) -> Catalogue:
    for known in map(catalogue, SERVERS):
        if any(name.startswith(spellings(known.prefix)) for name in names):
            return known
    titles = ", ".join(catalogue(server).title for server in SERVERS)
    some = ", ".join(sorted(names)[:5])
    raise TachoscopeError(
        f"the series {{{labels}}} of the last {span[1:-1]} do not come from a supported inference server: {some}",
        fix=f"supported: {titles}",
    )


def _query(url: str, query: str) -> list[Mapping[str, Any]]:
    return prometheus_query.instant_query(url, query, most_bytes=MOST_BYTES, less="ask for less time, or for fewer servers")


# --- putting together ---------------------------------------------------------------------------------------------------------


def _instances(series: Iterable[Mapping[str, Any]], wanted: Mapping[str, str]) -> dict[str, _Instance]:
    found: dict[str, _Instance] = defaultdict(_Instance)
    for one in series:
        labels = dict(one["metric"])
        name, instance = labels.pop("__name__"), found[labels.get("instance", "")]
        for time, text in one["values"]:
            value = float(text)
            if name == "up":
                instance.failed |= {time} if value == 0 else set()
            elif plausible(value):
                instance.scrapes[time].append(Sample(wanted[name], labels, value))
    return {name: instance for name, instance in found.items() if instance.scrapes}


def _looks_at_one(instance: _Instance, known: Catalogue) -> list[Snapshot]:
    looks = [snapshot(rows, time, known) for time, rows in instance.scrapes.items()]
    looks += [Snapshot(time=time, fault=NOT_SCRAPED) for time in instance.failed]
    return sorted(looks, key=lambda look: look.time)


def _looks_at_all(instances: Mapping[str, _Instance], known: Catalogue) -> list[Snapshot]:
    """Return looks at all instances at the times of the one that was scraped most often.

    They begin once all have been scraped that were there from the start: a server that is missing in the first look would seem to
    have done in the second all that it ever did.
    """
    engines = {name: _engines(name, instance, known) for name, instance in instances.items()}
    times = sorted(max(instances.values(), key=lambda instance: len(instance.scrapes)).scrapes)
    interval = median([after - before for before, after in pairwise(times)] or [60.0])
    firsts = [min(of_one) for of_one in engines.values()]
    begin = max(first for first in firsts if first <= min(firsts) + 1.5 * interval)
    looks = []
    for time in [one for one in times if one >= begin]:
        there = [engine for of_one in engines.values() for engine in _last(of_one, time, 1.5 * interval)]
        looks.append(Snapshot(time=time, engines=tuple(there), server=known.server))
    return looks


def _last(engines: Mapping[float, list[EngineState]], time: float, most_seconds: float) -> list[EngineState]:
    """Return the engines at the last scrape up to `time`; without gauges if that is too long ago: then the server is away."""
    times = list(engines)
    position = bisect_right(times, time)
    last = engines[times[position - 1]] if position else []
    away = position > 0 and time - times[position - 1] > most_seconds
    return [replace(engine, gauges={}) for engine in last] if away else last


def _engines(name: str, instance: _Instance, known: Catalogue) -> dict[float, list[EngineState]]:
    """Return the engines of an instance at each scrape, in the order of time, with counters that do not fall."""
    as_they_are = {metric for signal in GAUGES if signal in known.signals for metric in known.signals[signal].metrics()}
    as_they_are |= {known.started} | ({known.kv_cache_tokens.metric} if known.kv_cache_tokens else set())
    last: dict[tuple[str, frozenset[tuple[str, str]]], tuple[float, float]] = {}
    found = {}
    for time, rows in sorted(instance.scrapes.items()):
        risen = []
        for row in rows:
            if row.name in as_they_are:
                risen.append(row)
                continue
            key = row.name, frozenset(row.labels.items())
            before, lost = last.get(key, (0.0, 0.0))
            lost += before if row.value < before else 0.0
            last[key] = row.value, lost
            risen.append(row._replace(value=row.value + lost))
        look = snapshot(risen, time, known)
        found[time] = [replace(engine, engine=f"{name} {engine.engine}".strip()) for engine in look.engines]
    return found
