"""Replays requests on a model of an engine with continuous batching, iteration after iteration.

The model is what vLLM, SGLang and TGI have in common: every iteration brings each decoding request one token; what is left of its
budget of tokens goes to prompts, first come, first served, in chunks; when the KV cache is full, the request that was admitted last
is put back into the queue and computed again.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from math import ceil

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class IterationCost:
    """What an iteration takes: `base` and a time for each prompt token computed and each output token made, in seconds."""

    base_seconds: float
    prompt_token_seconds: float
    output_token_seconds: float


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica.

    Attributes:
        max_running: requests that it works on at a time. max_iteration_tokens: prompt and output tokens of one iteration.
        kv_cache_tokens: tokens that its KV cache holds; 0: without limit.
        queue_limit: a request that finds so many waiting is refused; 0: none is.
        front_seconds: what a request spends outside of the engine before its first token: HTTP, tokenizer, the way back.
    """

    cost: IterationCost
    max_running: int
    max_iteration_tokens: int = 2048
    kv_cache_tokens: float = 0.0
    queue_limit: int = 0
    front_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """Requests in the order of their arrival: when, in seconds, and their tokens; each has an output token at least."""

    arrivals: Vector
    prompt_tokens: Counts
    output_tokens: Counts


@dataclass(frozen=True, slots=True)
class Iterations:
    """Iterations of an engine in their order; those that follow on each other and are alike are one row, `times` says how many.

    Attributes:
        starts: seconds. seconds: what each took. prompt_tokens, output_tokens: in each.
        decoding: output tokens that are not the first after a prompt.
    """

    starts: Vector
    seconds: Vector
    prompt_tokens: Vector
    output_tokens: Vector
    decoding: Vector
    times: Vector

    def one_by_one(self) -> Iterations:
        """Return one row for each iteration, where a row stood for `times` equal ones."""
        times = self.times.astype(np.int64)
        before = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        columns = (self.starts, self.seconds, self.prompt_tokens, self.output_tokens, self.decoding)
        starts, seconds, prompts, outputs, decoding = (np.repeat(column, times) for column in columns)
        return Iterations(starts + before * seconds, seconds, prompts, outputs, decoding, np.ones(len(seconds)))


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of the requests of a load, in its order.

    Attributes:
        queue_seconds, first_token_seconds, request_seconds: from arrival; infinite for a request that was refused.
        output_token_seconds: mean time from one of its tokens to the next (TPOT); NaN for one of a single token.
        prefill_seconds: from admission to the first token; NaN for a request that was refused.
        gap_seconds, gap_counts: times from one token to the next (ITL) of all requests, and how often each occurred.
        output_tokens: of the requests that were answered. end: when the last was. running_peak, preemptions: requests.
    """

    queue_seconds: Vector
    first_token_seconds: Vector
    request_seconds: Vector
    output_token_seconds: Vector
    prefill_seconds: Vector
    gap_seconds: Vector
    gap_counts: Vector
    iterations: Iterations
    output_tokens: int
    end: float
    running_peak: int
    preemptions: int


@dataclass(slots=True)
class _State:
    """The engine at a moment. `decoding`: by request in the order of admission, the iteration with its last token."""

    waiting: deque[int] = field(default_factory=deque)
    filling: deque[int] = field(default_factory=deque)
    decoding: dict[int, int] = field(default_factory=dict)
    ends: list[tuple[int, int]] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)
    kv_tokens: int = 0


class _Replay:
    """One replay; `run` goes through it once."""

    def __init__(self, load: Load, engine: Engine) -> None:
        self.engine, self.load = engine, load
        self.prompt, self.output = load.prompt_tokens.tolist(), load.output_tokens.tolist()
        count = len(self.prompt)
        self.admitted, self.first, self.end = ([float("inf")] * count for _ in range(3))
        self.made = [0] * count
        self.last = [0.0] * count
        self.rows: list[tuple[float, float, int, int, int, int]] = []
        self.long_gaps: list[float] = []
        self.state = _State()
        self.iterations, self.preemptions, self.running_peak = 0, 0, 0

    def run(self) -> Replayed:
        state, arrivals, now, coming = self.state, self.load.arrivals.tolist(), 0.0, 0
        limit = self.engine.queue_limit
        while True:
            while coming < len(arrivals) and arrivals[coming] <= now:
                if not limit or len(state.waiting) < limit:
                    state.waiting.append(coming)
                coming += 1
            if state.waiting or state.filling or state.decoding:
                now = self._iterate(now, arrivals[coming] if coming < len(arrivals) else float("inf"))
            elif coming < len(arrivals):
                now = arrivals[coming]
            else:
                return self._result(now)

    def _iterate(self, now: float, next_arrival: float) -> float:
        """Do an iteration that begins at `now`, and all that follow and are like it; return their end."""
        state, cost, room = self.state, self.engine.cost, self.engine.kv_cache_tokens
        self._make_room(now)
        decoding = len(state.decoding)
        filled, whole = self._fill(now, self.engine.max_iteration_tokens - decoding)
        output = decoding + len(whole)
        seconds = cost.base_seconds + cost.prompt_token_seconds * filled + cost.output_token_seconds * output
        times = 1
        if not filled:  # until a request ends or comes, or the cache is full, nothing changes
            times = state.ends[0][0] - self.iterations
            if room:
                times = min(times, int((room - state.kv_tokens) // decoding))
            if seconds * times > next_arrival - now:
                times = ceil((next_arrival - now) / seconds)
            times = max(times, 1)
        self.rows.append((now, seconds, filled, output, decoding, times))
        self.iterations += times
        now += seconds * times
        state.kv_tokens += decoding * times
        self.running_peak = max(self.running_peak, output + len(state.filling))
        while state.ends and state.ends[0][0] <= self.iterations:
            ends, request = heapq.heappop(state.ends)
            if state.decoding.get(request) == ends:
                del state.decoding[request]
                self._finish(request, now)
        for request in whole:
            self._first_token(request, now)
        return now

    def _make_room(self, now: float) -> None:
        """Put requests back into the queue until each that decodes has room for its next token."""
        state, room = self.state, self.engine.kv_cache_tokens
        while room and len(state.decoding) > 1 and state.kv_tokens + len(state.decoding) > room:
            request, ends = state.decoding.popitem()
            self.made[request] = self.output[request] - (ends - self.iterations)
            state.kv_tokens -= self.prompt[request] + self.made[request] - 1
            self.last[request] = now  # it decoded in the iteration that ended now
            state.waiting.appendleft(request)
            self.preemptions += 1

    def _fill(self, now: float, budget: int) -> tuple[int, list[int]]:
        """Compute prompts within a budget of tokens; return the tokens, and the requests whose prompts are whole."""
        state, engine, filled, whole = self.state, self.engine, 0, list[int]()
        while budget > 0:
            if state.filling:
                request = state.filling[0]
            elif state.waiting and len(state.decoding) + len(whole) < engine.max_running:
                request = state.waiting[0]
                need = self.prompt[request] + self.made[request]
                busy = state.decoding or whole
                if busy and engine.kv_cache_tokens and state.kv_tokens + len(state.decoding) + need > engine.kv_cache_tokens:
                    break
                state.filling.append(state.waiting.popleft())
                state.left[request] = need
                state.kv_tokens += need
                if self.admitted[request] == float("inf"):
                    self.admitted[request] = now
            else:
                break
            chunk = min(budget, state.left[request])
            state.left[request] -= chunk
            budget -= chunk
            filled += chunk
            if not state.left[request]:
                state.filling.popleft()
                whole.append(request)
        return filled, whole

    def _first_token(self, request: int, now: float) -> None:
        """Note the token that comes with the end of a prompt: the first, or after being put back the next."""
        if self.made[request]:
            self.long_gaps.append(now - self.last[request])
        else:
            self.first[request] = now
        self.made[request] += 1
        rest = self.output[request] - self.made[request]
        if rest <= 0:
            self._finish(request, now)
            return
        self.state.decoding[request] = self.iterations + rest
        heapq.heappush(self.state.ends, (self.iterations + rest, request))

    def _finish(self, request: int, now: float) -> None:
        self.end[request] = now
        self.state.kv_tokens -= self.prompt[request] + self.output[request] - 1

    def _result(self, now: float) -> Replayed:
        arrivals, front = self.load.arrivals, self.engine.front_seconds
        first, end, output = np.array(self.first), np.array(self.end), np.array(self.output)
        admitted = np.array(self.admitted)
        with np.errstate(invalid="ignore", divide="ignore"):  # refused, or of a single token
            mean_gaps = np.where(output > 1, (end - first) / (output - 1), np.nan)
            prefill = first - admitted
        starts, seconds, filled, made, decoding, times = np.array(self.rows, dtype=float).reshape(-1, 6).T
        some, long_gaps = decoding > 0, np.array(self.long_gaps, dtype=float)
        return Replayed(
            queue_seconds=admitted - arrivals,
            first_token_seconds=first - arrivals + front,
            request_seconds=end - arrivals + front,
            output_token_seconds=mean_gaps,
            prefill_seconds=prefill,
            gap_seconds=np.concatenate([seconds[some], long_gaps]),
            gap_counts=np.concatenate([(decoding * times)[some], np.ones(len(long_gaps))]),
            iterations=Iterations(starts, seconds, filled, made, decoding, times),
            output_tokens=int(output[np.isfinite(end)].sum()),
            end=now,
            running_peak=self.running_peak,
            preemptions=self.preemptions,
        )


def replay(load: Load, engine: Engine) -> Replayed:
    """Return what an engine makes of a load."""
    return _Replay(load, engine).run()
