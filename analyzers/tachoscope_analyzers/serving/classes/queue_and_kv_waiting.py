"""Requests that wait: for an engine that cannot keep up (`queue_saturation`), or for room in the KV cache (`kv_pressure`).

Both make a queue. A full cache with preemptions stalls requests after their first token too, and then what waits, waits for memory:
capacity in computing would not help. A full cache without preemptions is a queue like any other.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.evidence import compared, measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.serving.classes.states import SecondsByState
from tachoscope_analyzers.serving.records.traffic import Traffic, Vector
from tachoscope_core.report.report import Evidence

_BRIDGED = 2
"""A cache that has room for so few intervals, when a request ended, is still one that is full."""


def candidates(traffic: Traffic, spent: SecondsByState, *, noticed: bool = False) -> list[Candidate]:
    """Return what was lost to each; a queue whose requests wait for less than anybody notices is none.

    Args:
        noticed: somebody notices any: an objective is broken.
    """
    full = _full(traffic)
    queued = spent.requests["queued"]
    by_cache = np.where(full, queued, 0.0) + spent.requests["preempted"]
    by_rate = np.where(full, 0.0, queued)
    requests = max(traffic.count("first_token_seconds") or sum(traffic.outcomes.values()), 1.0)
    least = 1e-9 if noticed else threshold("queued_seconds")
    found = []
    if float(by_rate.sum()) / requests >= least:
        found.append(_saturation(traffic, by_rate, by_cache))
    if float(by_cache.sum()) / requests >= least:
        found.append(_pressure(traffic, by_cache, by_rate))
    return found


def _full(traffic: Traffic) -> npt.NDArray[np.bool_]:
    """Return the intervals in which requests wait for the KV cache."""
    usage, preemptions = traffic.gauges.get("kv_cache_usage_ratio"), traffic.counters.get("preemptions_total")
    waiting = traffic.gauges.get("requests_waiting")
    if preemptions is None or waiting is None or not preemptions.sum():
        return np.zeros(len(traffic.seconds), dtype=bool)
    full = preemptions > 0
    if usage is not None:
        full = full | (usage >= threshold("kv_cache_full_ratio"))
    return _bridged(full) & (waiting > 0)


def _bridged(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the mask with short gaps filled."""
    where = np.flatnonzero(mask)
    filled = mask.copy()
    for before, after in pairwise(where):
        if after - before <= _BRIDGED + 1:
            filled[before:after] = True
    return filled


def _saturation(traffic: Traffic, lost: Vector, other: Vector) -> Candidate:
    known = rates(traffic)
    waiting = traffic.gauges.get("requests_waiting")
    evidence = []
    if waiting is not None:
        evidence += [
            Evidence(
                signal="requests waiting, mean", value=float(waiting.mean()), threshold=0.0, comparison=">", source="queue gauge"
            ),
            Evidence(signal="requests waiting, at the end", value=float(waiting[-1]), source="queue gauge"),
            measured("requests waiting, growth", _slope(traffic, waiting), "a second", "queue gauge"),
        ]
    if known is not None:
        arrived, served = known
        evidence.append(
            Evidence(
                signal="arrivals",
                value=arrived,
                threshold=served,
                comparison=">" if arrived > served else "<=",
                unit="a second",
                source="threshold: what was served",
            )
        )
    running = traffic.gauges.get("requests_running")
    if running is not None and waiting is not None and (waiting >= 1).any():
        evidence.append(
            Evidence(
                signal="requests running while others wait", value=float(np.median(running[waiting >= 1])), source="running gauge"
            )
        )
    return Candidate(
        "queue_saturation",
        lost,
        "all",
        [*evidence, *_usage(traffic)],
        certainty=0.95 if waiting is not None else 0.8,
        alternative=_alternative("kv_pressure", lost, other),
    )


def _pressure(traffic: Traffic, lost: Vector, other: Vector) -> Candidate:
    preemptions = traffic.total("preemptions_total")
    evidence = [
        Evidence(
            signal="preemptions",
            value=preemptions * 60 / traffic.wall_seconds,
            threshold=0.0,
            comparison=">",
            unit="a minute",
            source="counter of preemptions",
        ),
        *_usage(traffic),
        Evidence(
            signal="requests waiting, mean",
            value=float(traffic.gauges.get("requests_waiting", np.zeros(1)).mean()),
            source="queue gauge",
        ),
    ]
    if traffic.kv_cache_tokens:
        evidence.append(measured("KV cache", traffic.kv_cache_tokens, "tokens", "configuration of the server"))
    return Candidate(
        "kv_pressure", lost, "all", evidence, certainty=0.95, alternative=_alternative("queue_saturation", lost, other)
    )


def _alternative(slug: str, lost: Vector, other: Vector) -> tuple[str, float]:
    """Return the look-alike, and how far it is behind as a share of the seconds that both explain."""
    both = float(lost.sum() + other.sum())
    return slug, float(lost.sum() - other.sum()) / max(both, 1e-12)


def _usage(traffic: Traffic) -> list[Evidence]:
    usage = traffic.gauges.get("kv_cache_usage_ratio")
    if usage is None:
        return []
    limit = threshold("kv_cache_full_ratio")
    most = float(usage.max())
    return [compared("KV cache in use, at most", most, limit, "ratio", "KV cache gauge")]


def _slope(traffic: Traffic, waiting: Vector) -> float:
    """Return the queue's growth in requests a second, by least squares."""
    times = np.cumsum(traffic.seconds)
    return float(np.polyfit(times, waiting, 1)[0]) if len(times) > 1 else 0.0


def rates(traffic: Traffic) -> tuple[float, float] | None:
    """Return arrivals and completions a second: what arrived is what ended and what is there now more than before."""
    ended = traffic.count("request_seconds") or sum(traffic.outcomes.values())
    gauges = [traffic.gauges[name] for name in ("requests_running", "requests_waiting") if name in traffic.gauges]
    if not gauges or not traffic.wall_seconds:
        return None
    more = sum(float(gauge[-1] - gauge[0]) for gauge in gauges)
    return max(ended + more, 0.0) / traffic.wall_seconds, ended / traffic.wall_seconds
