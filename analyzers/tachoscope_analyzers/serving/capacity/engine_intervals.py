"""What an engine did in each interval: iterations, tokens, times; from a server's page, an engine's own records, or a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.serving.capacity.engine_simulator import Load, Replayed, Vector
from tachoscope_analyzers.serving.records.traffic import Traffic
from tachoscope_core.records.records import EngineWindow

MIN_ITERATIONS = 3
"""An interval with fewer says too little."""
_OWN = ("window_seconds", "iterations", "prompt_tokens", "generation_tokens", "iteration_seconds")


@dataclass(frozen=True, slots=True)
class Intervals:
    """What an engine did in K intervals, all vectors of shape (K,).

    Attributes:
        starts: seconds from the start of the record. seconds: their lengths.
        gap_counts, gap_seconds: times from one token to the next, and their sum; of an engine's own records: its iterations.
        first_tokens: requests that had theirs.
        prefill_counts, prefill_seconds: requests that ended, and their sum from admission to the first token.
    """

    starts: Vector
    seconds: Vector
    iterations: Vector
    prompt_tokens: Vector
    output_tokens: Vector
    gap_counts: Vector
    gap_seconds: Vector
    first_tokens: Vector
    prefill_counts: Vector
    prefill_seconds: Vector

    @property
    def usable(self) -> npt.NDArray[np.bool_]:
        """Which intervals say something about the iterations, shape (K,)."""
        return (self.iterations >= MIN_ITERATIONS) & (self.gap_counts > 0) & (self.gap_seconds > 0)


def of_traffic(traffic: Traffic) -> Intervals | None:
    """Return the intervals of a server's page, of one engine on average; None: it does not count iterations and times of tokens."""
    needed = ("iteration_tokens", "inter_token_seconds", "prefill_seconds", "first_token_seconds")
    if any(name not in traffic.counts for name in needed) or "generation_tokens_total" not in traffic.counters:
        return None
    output = traffic.counters["generation_tokens_total"]
    rows = {
        "iterations": traffic.counts["iteration_tokens"],
        "prompt_tokens": np.maximum(traffic.sums["iteration_tokens"] - output, 0.0),
        "output_tokens": output,
        "gap_counts": traffic.counts["inter_token_seconds"],
        "gap_seconds": traffic.sums["inter_token_seconds"],
        "first_tokens": traffic.counts["first_token_seconds"],
        "prefill_counts": traffic.counts["prefill_seconds"],
        "prefill_seconds": traffic.sums["prefill_seconds"],
    }
    whole = traffic.answered
    starts = np.cumsum(traffic.seconds) - traffic.seconds
    each = {name: row[whole] / traffic.engines for name, row in rows.items()}
    return Intervals(starts=starts[whole], seconds=traffic.seconds[whole], **each)


def of_windows(windows: Sequence[EngineWindow]) -> Intervals | None:
    """Return the intervals of an engine's own records; None: it has none with iterations."""
    rows = sorted((window for window in windows if window.iterations > 0), key=lambda window: window.time)
    if not rows:
        return None
    column = {name: np.array([float(getattr(row, name)) for row in rows]) for name in _OWN}
    starts = np.array([row.time - row.window_seconds for row in rows])
    nothing = np.zeros(len(rows))
    return Intervals(
        starts=starts - starts[0],
        seconds=column["window_seconds"],
        iterations=column["iterations"],
        prompt_tokens=column["prompt_tokens"],
        output_tokens=column["generation_tokens"],
        gap_counts=column["iterations"],
        gap_seconds=column["iteration_seconds"],
        first_tokens=nothing,
        prefill_counts=nothing,
        prefill_seconds=nothing,
    )


def of_replay(load: Load, replayed: Replayed, like: Intervals) -> Intervals:
    """Return what a server would have counted of a replay, in the same intervals."""
    edges = np.append(like.starts, like.starts[-1] + like.seconds[-1])
    each = replayed.iterations.one_by_one()
    ends, output = each.starts + each.seconds, each.output_tokens

    def counted(times: Vector, values: Vector | None = None) -> Vector:
        return np.histogram(times, edges, weights=values)[0].astype(np.float64)

    first = load.arrivals + replayed.first_token_seconds
    end = load.arrivals + replayed.request_seconds
    firsts = counted(first)
    return Intervals(
        starts=like.starts,
        seconds=like.seconds,
        iterations=counted(ends),
        prompt_tokens=counted(ends, each.prompt_tokens),
        output_tokens=counted(ends, output),
        gap_counts=counted(ends, each.decoding),
        gap_seconds=counted(ends, each.decoding * each.seconds),
        first_tokens=firsts,
        prefill_counts=counted(end),
        prefill_seconds=counted(end, replayed.prefill_seconds),
    )
