"""The part of a report that is about inference: rates, outcomes and latencies of a server over a window."""

from __future__ import annotations

from typing import Literal

import msgspec

Latency = Literal["queue", "first_token", "inter_token", "output_token", "request"]
"""Waiting for the engine; to the first token (TTFT); from a token to the next (ITL); its mean over a request (TPOT); the whole."""


class LatencySeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Distribution of a latency in seconds. A quantile is known by its bucket, (low, high), of which None is above all bounds.

    Attributes:
        count: observations. mean: exact.
    """

    name: Latency
    count: float
    mean: float
    p50: tuple[float, float | None] | None = None
    p95: tuple[float, float | None] | None = None
    p99: tuple[float, float | None] | None = None


class ObjectiveResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a service met one of its objectives over the window.

    Attributes:
        name: of the objective. signal: of `tachoscope_core.servers.snapshot.HISTOGRAMS`, or `outcomes`.
        bound_seconds: a latency is good up to this; None: not a latency.
        target, good: ratio of good events that is asked for, and was; None: not measured. bad, total: events.
        state: too_few: below the target by fewer bad events than the objective calls a failure.
        explained_by: class of bottleneck; empty: none. where: ledger state of most of the time that it counts; empty: not known.
    """

    name: str
    signal: str
    bound_seconds: float | None = None
    target: float
    good: float | None
    bad: float
    total: float
    state: Literal["met", "broken", "too_few", "not_measured"]
    explained_by: str = ""
    where: str = ""


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """What a server did in the window of the report.

    Attributes:
        server: its make. models, engines: that it serves. looks, unanswered: how often it was looked at; 0: records were read.
        arrived_per_second, served_per_second: requests. tokens_in_per_second, tokens_out_per_second: of prompts, and generated.
        outcomes: requests that ended, by how. running_mean, waiting_mean, waiting_last: requests, None: not said.
        kv_cache_usage_max: ratio, None: not said. preemptions: requests put back in the queue, None: not said.
        objectives: those that were compared with it.
    """

    server: str
    models: list[str]
    engines: int
    looks: int = 0
    unanswered: int = 0
    arrived_per_second: float | None = None
    served_per_second: float
    tokens_in_per_second: float
    tokens_out_per_second: float
    outcomes: dict[str, float]
    latencies: list[LatencySeconds]
    running_mean: float | None = None
    waiting_mean: float | None = None
    waiting_last: float | None = None
    kv_cache_usage_max: float | None = None
    preemptions: float | None = None
    objectives: list[ObjectiveResult] = []
