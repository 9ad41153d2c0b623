"""An engine with continuous batching whose costs are known, so that what an analysis says can be held against the truth.

It makes the snapshots that a server's page would give, and counts apart from them where the time of requests went.
"""

from __future__ import annotations

import bisect
import random
from collections import Counter
from dataclasses import dataclass, field

from tachoscope_core.snapshot import Buckets, EngineState, Snapshot

SECONDS_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0)
TOKEN_BOUNDS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0)


@dataclass
class Histogram:
    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def observe(self, value: float) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def now(self) -> Buckets:
        counts, total = [], 0
        for count in self.counts or [0] * (len(self.bounds) + 1):
            total += count
            counts.append(float(total))
        return Buckets(self.bounds, tuple(counts), self.sum)


@dataclass
class Request:
    arrived: float
    prompt: int
    output: int
    admitted: float = -1.0
    first: float = -1.0
    last: float = -1.0
    done: int = 0
    stopped: bool = False


@dataclass(frozen=True)
class Engine:
    """Seconds of an iteration = base + by_request x decoding + by_prompt_token x prompt tokens."""

    base: float = 0.005
    by_request: float = 0.0005
    by_prompt_token: float = 0.00006
    most_running: int = 64
    cache_tokens: int = 1_000_000


def requests(
    rate: float, seconds: float, prompt: int, output: int, *, long_prompt: int = 0, long_share: float = 0.0
) -> list[Request]:
    """Return Poisson arrivals."""
    randomly, at, found = random.Random(7), 0.0, []
    while (at := at + randomly.expovariate(rate)) < seconds:
        found.append(
            Request(at, long_prompt if randomly.random() < long_share else prompt, randomly.randint(output // 2, output * 3 // 2))
        )
    return found


def serve(engine: Engine, arriving: list[Request], seconds: float, every: float = 0.5) -> tuple[list[Snapshot], Counter[str]]:
    """Return looks at the server, and the true request-seconds by state, with `interference` beside them."""
    histograms = {
        **{name: Histogram(SECONDS_BOUNDS) for name in ("first_token_seconds", "inter_token_seconds", "request_seconds")},
        **{name: Histogram(SECONDS_BOUNDS) for name in ("queue_seconds", "prefill_seconds", "decode_seconds")},
        "iteration_tokens": Histogram(TOKEN_BOUNDS),
    }
    counters = Counter({"preemptions_total": 0, "prompt_tokens_total": 0, "generation_tokens_total": 0})
    truth: Counter[str] = Counter()
    waiting: list[Request] = []
    running: list[Request] = []
    looks: list[Snapshot] = []
    clock, coming = 0.0, list(arriving)

    def used() -> int:
        return sum(request.prompt + request.done for request in running)

    def look(at: float) -> None:
        arrived = [request for request in coming if request.arrived <= at]
        gauges = {
            "requests_running": float(len(running)),
            "requests_waiting": float(len(waiting) + len(arrived)),
            "kv_cache_usage_ratio": used() / engine.cache_tokens,
        }
        state = EngineState(
            "planted",
            "0",
            gauges,
            dict(counters),
            {name: one.now() for name, one in histograms.items()},
            {"ok": float(counters["ended"])},
        )
        looks.append(Snapshot(time=1e9 + at, engines=(state,), server="vllm", started=1e9 - 100.0))

    while clock < seconds:
        while coming and coming[0].arrived <= clock:
            waiting.append(coming.pop(0))
        fresh: list[Request] = []
        while (
            waiting and len(running) < engine.most_running and used() + waiting[0].prompt + waiting[0].done <= engine.cache_tokens
        ):
            fresh.append(waiting.pop(0))
            running.append(fresh[-1])
            if fresh[-1].admitted < 0:
                fresh[-1].admitted = clock
        while used() + len(running) > engine.cache_tokens and len(running) > 1:
            stopped = running.pop()
            if stopped in fresh:
                fresh.remove(stopped)
            stopped.stopped = stopped.first >= 0
            waiting.insert(0, stopped)
            counters["preemptions_total"] += 1
        computed = sum(request.prompt + request.done for request in fresh)
        decoding = [request for request in running if request not in fresh]
        if running:
            length = engine.base + engine.by_request * len(decoding) + engine.by_prompt_token * computed
        else:
            length = max(min((coming[0].arrived if coming else seconds), (len(looks)) * every) - clock, 1e-6)
        end = clock + length
        while len(looks) * every <= min(end, seconds):
            look(len(looks) * every)
        for request in [*waiting, *(one for one in coming if one.arrived < end)]:
            truth["preempted" if request.stopped else "queued"] += end - max(clock, request.arrived)
        for request in running:
            state = "preempted" if request in fresh and request.stopped else "prefill" if request in fresh else "decode"
            truth[state] += length
        if running:
            truth["interference"] += engine.by_prompt_token * computed * len(decoding)
            histograms["iteration_tokens"].observe(computed + len(decoding))
        for request in list(running):
            request.done += 1
            request.stopped = False
            if request.first < 0:
                counters["prompt_tokens_total"] += request.prompt
                request.first = end
                histograms["first_token_seconds"].observe(end - request.arrived)
            else:
                histograms["inter_token_seconds"].observe(end - request.last)
            counters["generation_tokens_total"] += 1
            request.last = end
            if request.done >= request.output:
                running.remove(request)
                counters["ended"] += 1
                histograms["request_seconds"].observe(end - request.arrived)
                histograms["queue_seconds"].observe(request.admitted - request.arrived)
                histograms["prefill_seconds"].observe(request.first - request.admitted)
                histograms["decode_seconds"].observe(end - request.first)
        clock = end
    return looks, truth
