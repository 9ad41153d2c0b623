"""An engine with continuous batching whose costs are known, so that what an analysis says can be compared with the truth.

It makes the snapshots that a server's page would give, and counts apart from them where the time of requests went.
"""

from __future__ import annotations

import bisect
import random
from collections import Counter
from dataclasses import dataclass, field

from tachoscope_core.servers.snapshot import Buckets, EngineState, Snapshot

SECONDS_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0)
TOKEN_BOUNDS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0)

LATENCIES = tuple(f"{name}_seconds" for name in ("first_token", "inter_token", "request", "queue", "prefill", "decode"))


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


class _Server:
    """The requests in an engine, what its page counts, and where their time really went."""

    def __init__(self, engine: Engine, arriving: list[Request]) -> None:
        self.engine = engine
        self.coming, self.waiting, self.running = list(arriving), list[Request](), list[Request]()
        self.fresh: list[Request] = []  # those that are admitted in this iteration
        self.counters = Counter({"preemptions_total": 0, "prompt_tokens_total": 0, "generation_tokens_total": 0})
        self.histograms = {name: Histogram(SECONDS_BOUNDS) for name in LATENCIES} | {"iteration_tokens": Histogram(TOKEN_BOUNDS)}
        self.truth: Counter[str] = Counter()

    def used(self) -> int:
        return sum(request.prompt + request.done for request in self.running)

    def look(self, at: float) -> Snapshot:
        """Return what the page says."""
        arrived = [request for request in self.coming if request.arrived <= at]
        gauges = {
            "requests_running": float(len(self.running)),
            "requests_waiting": float(len(self.waiting) + len(arrived)),
            "kv_cache_usage_ratio": self.used() / self.engine.cache_tokens,
        }
        histograms = {name: one.now() for name, one in self.histograms.items()}
        state = EngineState("planted", "0", gauges, dict(self.counters), histograms, {"ok": float(self.counters["ended"])})
        return Snapshot(time=1e9 + at, engines=(state,), server="vllm", started=1e9 - 100.0)

    def schedule(self, clock: float) -> None:
        """Admit what fits, then put back what was admitted last while there is no room for the next tokens."""
        while self.coming and self.coming[0].arrived <= clock:
            self.waiting.append(self.coming.pop(0))
        self.fresh = []
        while self.waiting and len(self.running) < self.engine.most_running and self._fits(self.waiting[0]):
            admitted = self.waiting.pop(0)
            self.fresh.append(admitted)
            self.running.append(admitted)
            admitted.admitted = clock if admitted.admitted < 0 else admitted.admitted
        while self.used() + len(self.running) > self.engine.cache_tokens and len(self.running) > 1:
            stopped = self.running.pop()
            if stopped in self.fresh:
                self.fresh.remove(stopped)
            stopped.stopped = stopped.first >= 0
            self.waiting.insert(0, stopped)
            self.counters["preemptions_total"] += 1

    def _fits(self, request: Request) -> bool:
        return self.used() + request.prompt + request.done <= self.engine.cache_tokens

    def decoding(self) -> int:
        return sum(request not in self.fresh for request in self.running)

    def computed(self) -> int:
        """Return the prompt tokens of the iteration: of one that was put back, all again."""
        return sum(request.prompt + request.done for request in self.fresh)

    def seconds(self) -> float:
        """Return how long the iteration takes."""
        engine = self.engine
        return engine.base + engine.by_request * self.decoding() + engine.by_prompt_token * self.computed()

    def book(self, clock: float, end: float) -> None:
        """Add to the truth where each request was from `clock` to `end`."""
        for request in [*self.waiting, *(one for one in self.coming if one.arrived < end)]:
            self.truth["preempted" if request.stopped else "queued"] += end - max(clock, request.arrived)
        for request in self.running:
            state = "decode" if request not in self.fresh else "preempted" if request.stopped else "prefill"
            self.truth[state] += end - clock
        if self.running:
            self.truth["interference"] += self.engine.by_prompt_token * self.computed() * self.decoding()
            self.histograms["iteration_tokens"].observe(self.computed() + self.decoding())

    def tokens(self, end: float) -> None:
        """Give each running request its token; those with their last one end."""
        for request in list(self.running):
            request.done += 1
            request.stopped = False
            self.counters["generation_tokens_total"] += 1
            if request.first < 0:
                self.counters["prompt_tokens_total"] += request.prompt
                request.first = end
                self.histograms["first_token_seconds"].observe(end - request.arrived)
            else:
                self.histograms["inter_token_seconds"].observe(end - request.last)
            request.last = end
            if request.done >= request.output:
                self._end(request, end)

    def _end(self, request: Request, end: float) -> None:
        self.running.remove(request)
        self.counters["ended"] += 1
        parts = {
            "request": end - request.arrived,
            "queue": request.admitted - request.arrived,
            "prefill": request.first - request.admitted,
            "decode": end - request.first,
        }
        for name, seconds in parts.items():
            self.histograms[f"{name}_seconds"].observe(seconds)


def serve(engine: Engine, arriving: list[Request], seconds: float, every: float = 0.5) -> tuple[list[Snapshot], Counter[str]]:
    """Return looks at the server, and the true request-seconds by state, with `interference` beside them."""
    server, clock, looks = _Server(engine, arriving), 0.0, list[Snapshot]()
    while clock < seconds:
        server.schedule(clock)
        next_arrival = server.coming[0].arrived if server.coming else seconds
        idle = max(min(next_arrival, len(looks) * every) - clock, 1e-6)
        end = clock + (server.seconds() if server.running else idle)
        while len(looks) * every <= min(end, seconds):
            looks.append(server.look(len(looks) * every))
        server.book(clock, end)
        server.tokens(end)
        clock = end
    return looks, server.truth
