"""What one iteration of an engine costs: fitted to how long iterations took in each interval.

Where the server does not say that, the mean time between tokens tells it, since every request that decodes gets one token from each
iteration. It grows with the requests in it and with the prompt tokens that are computed beside them. Sarathi-Serve calls the latter
a generation stall, https://arxiv.org/abs/2403.02310.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.serving.records.non_negative_least_squares import non_negative
from tachoscope_analyzers.serving.records.traffic import Traffic, Vector

RESAMPLES = 200
MINIMUM_INTERVALS = 8
_BLOCK = 4
_FEW_PROMPTS = 0.5
"""In one interval of ten there must be no more than this part of the mean: what is never seen without prompts is not known."""


@dataclass(frozen=True, slots=True)
class IterationModel:
    """Seconds of an iteration = base + by_request x decoding requests + by_prompt_token x prompt tokens, none of them negative.

    Attributes:
        by_prompt_token_low: lower end of its 90 % interval, by resampling blocks of intervals; 0 where the prompts explain little
            of what the rest leaves.
        prompt_tokens: mean per iteration in each interval, shape (K,); weights: times between tokens in it; 0: it was not used.
    """

    base: float
    by_request: float
    by_prompt_token: float
    by_prompt_token_low: float
    prompt_tokens: Vector
    weights: Vector


def pace(traffic: Traffic, *, without: npt.NDArray[np.bool_]) -> IterationModel | None:
    """Return the fit over the intervals but those in `without`.

    None where the server says too little, too little happened, or no interval had few prompts, to be compared with the others.
    """
    iterations = iterations_of(traffic)
    if iterations is None or "inter_token_seconds" not in traffic.sums:
        return None
    count = traffic.counts["inter_token_seconds"]
    used = (count > 0) & (iterations > 0) & ~without
    if int(used.sum()) < MINIMUM_INTERVALS:
        return None
    per = np.where(used, 1.0 / np.maximum(iterations, 1.0), 0.0)
    prompt = computed_prompt_tokens(traffic) * per
    if float(np.quantile(prompt[used], 0.1)) > _FEW_PROMPTS * float(prompt[used].mean()):
        return None
    weights = np.where(used, count, 0.0)
    columns = np.column_stack([np.ones_like(per), count * per, prompt])[used]
    times = _lengths(traffic, iterations)[used]
    base, by_request, by_prompt_token = map(float, non_negative(columns, times, weights[used]))
    resampled = _resampled(columns, times, weights[used])
    low = float(np.quantile(resampled[:, 2], 0.05))
    if _explained(columns, times, weights[used]) < threshold("interference_explained_ratio"):
        low = 0.0
    return IterationModel(base, by_request, by_prompt_token, low, prompt, weights)


def _lengths(traffic: Traffic, iterations: Vector) -> Vector:
    """Return the mean length of an iteration in each interval, in seconds, shape (K,)."""
    if "iteration_seconds" in traffic.sums:
        return np.asarray(traffic.sums["iteration_seconds"] / np.maximum(iterations, 1e-9))
    return np.asarray(traffic.sums["inter_token_seconds"] / np.maximum(traffic.counts["inter_token_seconds"], 1.0))


def _explained(columns: npt.NDArray[np.float64], values: Vector, weights: Vector) -> float:
    """Return how much of the variance that the other columns leave is explained by the last one, a ratio."""
    rests = [
        float((weights * (values - part @ non_negative(part, values, weights)) ** 2).sum()) for part in (columns[:, :-1], columns)
    ]
    return 1.0 - rests[1] / rests[0] if rests[0] else 0.0


def iterations_of(traffic: Traffic) -> Vector | None:
    """Return the iterations of each interval, shape (K,): counted by the server, else tokens over the requests that ran."""
    if "iteration_tokens" in traffic.counts:
        return traffic.counts["iteration_tokens"]
    running = traffic.gauges.get("requests_running")
    if running is None or "inter_token_seconds" not in traffic.counts:
        return None
    return np.asarray(traffic.counts["inter_token_seconds"] / np.maximum(running, 1.0))


def computed_prompt_tokens(traffic: Traffic) -> Vector:
    """Return the prompt tokens that were computed in each interval, shape (K,), those from a cache excluded."""
    generated = traffic.counters.get("generation_tokens_total")
    if "iteration_tokens" in traffic.sums and generated is not None:
        return np.maximum(traffic.sums["iteration_tokens"] - generated, 0.0)
    zero = np.zeros_like(traffic.seconds)
    return np.maximum(
        traffic.counters.get("prompt_tokens_total", zero) - traffic.counters.get("cached_prompt_tokens_total", zero), 0.0
    )


def _resampled(columns: npt.NDArray[np.float64], values: Vector, weights: Vector) -> npt.NDArray[np.float64]:
    """Return the coefficients in block-bootstrap resamples of the intervals, shape (RESAMPLES, C); the seed is fixed."""
    count = len(values)
    randomly = np.random.default_rng(0)
    starts = randomly.integers(0, max(1, count - _BLOCK + 1), size=(RESAMPLES, -(-count // _BLOCK)))
    rows = (starts[:, :, None] + np.arange(min(_BLOCK, count))).reshape(RESAMPLES, -1)
    return np.array([non_negative(columns[row], values[row], weights[row]) for row in rows])
