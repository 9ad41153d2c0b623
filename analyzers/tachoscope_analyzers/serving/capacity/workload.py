"""What requests a server had: how often they came, how evenly, and how long they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.serving.capacity.engine_simulator import Counts, Load, Vector
from tachoscope_analyzers.serving.records.traffic import Traffic
from tachoscope_core.records.records import RequestDone
from tachoscope_core.servers.snapshot import Buckets

_PAUSE = 100.0
"""A time between arrivals that is so many times the median is a pause in the traffic."""
_MIN_GAPS = 30
_MIN_WINDOWS = 12
_WINDOW_SECONDS = 4.0
_DEVIATIONS = 2.5
_PARTS = 8
_PART_DISPERSION = 3.5
"""Of a steady process the variance of eight counts is so many times what it is expected to be once in a thousand recordings."""
_CHANGED_RATE, _CHANGED_LENGTH = 0.2, 0.3
"""Coefficient of variation over the eighths of a recording above which its load is not one load."""
_NO_QUEUE = 1.0
"""With more requests waiting than this on average, first tokens come as the engine makes them, not as requests arrive."""
_SHAPES = (0.05, 20.0)


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests as they come.

    Attributes:
        rate: a second, as recorded.
        shape: of the gamma distribution of the times between arrivals: 1 is Poisson, below 1 come bursts.
        prompt_tokens, output_tokens: of requests; those of one request are at one place if `together`, else independent.
        measured, assumed: sentences about where this is from.
    """

    rate: float
    shape: float
    prompt_tokens: Counts
    output_tokens: Counts
    together: bool
    measured: tuple[str, ...]
    assumed: tuple[str, ...]

    def load(self, rate: float, count: int, seed: int) -> Load:
        """Return so many requests at a rate; the same seed gives the same requests, at another rate only closer together."""
        randomly = np.random.default_rng(seed)
        gaps = randomly.gamma(self.shape, 1 / self.shape, count)
        prompts = randomly.integers(0, len(self.prompt_tokens), count)
        outputs = prompts if self.together else randomly.integers(0, len(self.output_tokens), count)
        return Load(np.cumsum(gaps) / rate, self.prompt_tokens[prompts], self.output_tokens[outputs])


def of_traffic(traffic: Traffic) -> Workload | None:
    """Return the requests that a server's page reports; None: it has no histograms of their tokens, or there were none."""
    lengths = [traffic.totals.get(name) for name in ("prompt_tokens", "generation_tokens")]
    arrivals = arrivals_by_interval(traffic)
    if arrivals is None or any(part is None or part.count <= 0 for part in lengths):
        return None
    prompt, output = (_values(part) for part in lengths if part is not None)
    came = np.flatnonzero(arrivals > 0)
    inside = slice(came[0], came[-1] + 1)
    queue = traffic.gauges.get("requests_waiting", np.zeros(len(arrivals)))[inside].mean()
    shape, known = _shape(arrivals[inside], traffic.seconds[inside]) if queue < _NO_QUEUE else (1.0, False)
    count = int(arrivals.sum())
    of = f"{count} requests in {traffic.seconds[inside].sum():.0f} s"
    evenness = f"times between arrivals: {_evenness(shape)}, from the scatter of {of}"
    return Workload(
        rate=float(arrivals[inside].sum() / traffic.seconds[inside].sum()),
        shape=shape,
        prompt_tokens=prompt,
        output_tokens=output,
        together=False,
        measured=("lengths of prompts and outputs, from the server's histograms", *([evenness] if known else [])),
        assumed=(
            "lengths within a histogram bucket are spread to match the sum; output length is independent of prompt length",
            *([] if known else [f"arrivals are Poisson: {of} do not show otherwise"]),
        ),
    )


def of_requests(requests: Sequence[RequestDone]) -> Workload | None:
    """Return the requests that were recorded one by one; None: none of them has its tokens."""
    rows = sorted((row for row in requests if row.tokens_out > 0), key=lambda row: row.time - row.wall_seconds)
    if len(rows) < 2:
        return None
    arrivals = np.array([row.time - row.wall_seconds for row in rows])
    counts = np.histogram(arrivals, np.arange(arrivals[0], arrivals[-1] + 1.0))[0].astype(np.float64)
    gaps = np.diff(arrivals)
    gaps = gaps[gaps <= _PAUSE * max(float(np.median(gaps)), 1e-9)]  # pauses between loads are no bursts
    known = len(gaps) >= _MIN_GAPS and gaps.mean() > 0
    shape = float(np.clip(gaps.mean() ** 2 / gaps.var(), *_SHAPES)) if known and gaps.var() > 0 else 1.0
    if len(counts) >= _MIN_WINDOWS * _WINDOW_SECONDS:
        shape, _ = _shape(counts, np.ones(len(counts)))
    return Workload(
        rate=float(len(gaps) / max(gaps.sum(), 1e-9)),
        shape=shape,
        prompt_tokens=np.array([max(row.tokens_in, 1) for row in rows]),
        output_tokens=np.array([row.tokens_out for row in rows]),
        together=True,
        measured=(
            f"lengths of {len(rows)} requests",
            *([f"times between arrivals: {_evenness(shape)}, from {len(gaps)} of them"] if known else []),
        ),
        assumed=() if known else (f"arrivals are Poisson: {len(gaps)} times between them do not tell otherwise",),
    )


def arrivals_by_interval(traffic: Traffic) -> Vector | None:
    """Return how many requests came in each interval; None: the server does not count first tokens, or had none."""
    if "first_token_seconds" not in traffic.counts or traffic.count("first_token_seconds") <= 0:
        return None
    waiting = traffic.gauges.get("requests_waiting", np.zeros(len(traffic.seconds)))
    # A gauge is the mean of an interval's two looks; from middle to middle it is close enough to the change inside one.
    grown = np.diff(waiting, prepend=waiting[:1]) / 2 + np.diff(waiting, append=waiting[-1:]) / 2
    return np.maximum(traffic.counts["first_token_seconds"] + grown, 0.0)


def _shape(arrivals: Vector, seconds: Vector) -> tuple[float, bool]:
    """Return the shape that the scatter of counts tells, and whether it can be told from a Poisson process's.

    Counted over seconds: what scatters within less and is even over them is requests that were held up on their way, no bursts.
    """
    window = (np.cumsum(seconds) // _WINDOW_SECONDS).astype(int)
    begins = np.flatnonzero(np.diff(window, prepend=-1))
    arrivals, seconds = np.add.reduceat(arrivals, begins), np.add.reduceat(seconds, begins)
    expected = arrivals.sum() * seconds / seconds.sum()
    if len(arrivals) < _MIN_WINDOWS:
        return 1.0, False
    dispersion = _dispersion(arrivals, expected)
    if abs(dispersion - 1) < _DEVIATIONS * np.sqrt(3 / (len(arrivals) - 1)):
        return 1.0, False
    return float(np.clip(1 / max(dispersion, 1e-9), *_SHAPES)), True


def _dispersion(counts: Vector, expected: Vector) -> float:
    """Return the variance of counts by their mean, from neighbours alone: a rate that changes slowly is not a burst."""
    apart = np.diff(counts - expected) ** 2 / 2
    return float(apart.sum() / max((expected[1:] + expected[:-1]).sum() / 2, 1e-9))


def load_change(requests: Workload, seconds: Vector, arrivals: Vector, prompt_tokens: Vector, output_tokens: Vector) -> str:
    """Return how the load changed over the eighths of a recording, in words; empty: it is one load, or too few requests to tell.

    Args:
        seconds: length of each interval, shape (K,); the others: what came in it.
    """
    parts = np.minimum((np.cumsum(seconds) - seconds) / max(seconds.sum(), 1e-9) * _PARTS, _PARTS - 1).astype(int)
    spans, came, prompts, outputs = (
        np.bincount(parts, values, minlength=_PARTS) for values in (seconds, arrivals, prompt_tokens, output_tokens)
    )
    if not spans.all() or came.sum() < _PARTS * _MIN_GAPS:
        return ""
    expected, whole = (came.sum() * lengths / seconds.sum() for lengths in (spans, seconds))
    scatter = float(((came - expected) ** 2 / expected).sum() / (_PARTS - 1))
    rates = came / spans
    if scatter > _PART_DISPERSION * max(_dispersion(arrivals, whole), 1.0) and rates.std() > _CHANGED_RATE * rates.mean():
        return f"requests came at {rates.min():.3g} to {rates.max():.3g} a second"
    for name, tokens, each in (("prompts", prompts, requests.prompt_tokens), ("outputs", outputs, requests.output_tokens)):
        means = tokens / np.maximum(came, 1.0)
        by_chance = 2.0 * float(each.std() / each.mean()) / np.sqrt(came.mean())
        if means.std() > np.hypot(_CHANGED_LENGTH, by_chance) * means.mean():
            return f"{name} had {means.min():.0f} to {means.max():.0f} tokens on average"
    return ""


def _evenness(shape: float) -> str:
    if 0.8 <= shape <= 1.25:
        return "as of a Poisson process"
    return f"{'in bursts' if shape < 1 else 'more even than a Poisson process'} (gamma, shape {shape:.2f})"


def _values(histogram: Buckets, size: int = 2000) -> Counts:
    """Return values spread over the buckets as often as they are filled, inside each so that the whole has the histogram's mean."""
    bounds = np.array([*histogram.bounds, np.inf])
    lows = np.concatenate([[0.0], bounds[:-1]]) + 1
    filled = np.diff(np.concatenate([[0.0], histogram.counts])) / histogram.count
    mean = histogram.sum / histogram.count
    bounds[-1] = max(lows[-1], 4 * mean)  # nothing is known of how long those above all bounds are
    ranks = (np.arange(size) + 0.5) / size
    ends = np.cumsum(filled)
    bucket = np.minimum(np.searchsorted(ends, ranks), len(filled) - 1)
    inside = (ranks - (ends[bucket] - filled[bucket])) / np.maximum(filled[bucket], 1e-12)

    def spread(power: float) -> Vector:
        values: Vector = lows[bucket] + (bounds[bucket] - lows[bucket]) * np.clip(inside, 0, 1) ** power
        return values

    small, large = -4.0, 4.0
    for _ in range(40):
        middle = (small + large) / 2
        small, large = (middle, large) if spread(np.exp(middle)).mean() > mean else (small, middle)
    return np.maximum(np.rint(spread(np.exp((small + large) / 2))), 1).astype(np.int64)
