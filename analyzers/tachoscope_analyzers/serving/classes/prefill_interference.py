"""`prefill_interference`: prompts of others that are computed in the same iteration make the next token of all come later."""

from __future__ import annotations

import numpy as np

from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.serving.classes.iteration_cost import IterationModel, pace
from tachoscope_analyzers.serving.classes.states import SecondsByState
from tachoscope_analyzers.serving.records.traffic import Traffic
from tachoscope_core.report.report import Evidence
from tachoscope_core.servers.histogram_quantiles import quantile

_STALL = 4.0
"""Times between tokens that are so many times the usual are stalls; undisturbed, the slowest take two to three times as long."""


def fitted_pace(traffic: Traffic, spent: SecondsByState) -> IterationModel | None:
    """Return what iterations cost, from the intervals without a start or a preemption; None where that cannot be determined."""
    return pace(traffic, without=spent.away | (traffic.counters.get("preemptions_total", np.zeros_like(traffic.seconds)) > 0))


def candidates(traffic: Traffic, spent: SecondsByState, fitted: IterationModel | None) -> list[Candidate]:
    """Return what decoding lost to prompts; none where resampling says that it might be nothing.

    That is the fitted cost, or the stalls themselves where they are more: prompts hit single iterations, and the mean over an
    interval blurs how many others decoded in those, which makes the fitted cost too small.
    """
    if fitted is None or fitted.by_prompt_token_low <= 0.0:
        return []
    lost = fitted.by_prompt_token * fitted.prompt_tokens * fitted.weights
    if not traffic.total("preemptions_total"):  # which stall as well
        lost = lost * max(1.0, _stalled_seconds(traffic, fitted) / max(float(lost.sum()), 1e-12))
    lost = np.minimum(lost, spent.requests["decode"])
    certainty = min(0.95, fitted.by_prompt_token_low / fitted.by_prompt_token + 0.5)
    return [Candidate("prefill_interference", lost, "all", _evidence(traffic, fitted), certainty=certainty)]


def _stalled_seconds(traffic: Traffic, fitted: IterationModel) -> float:
    """Return the excess of times between tokens that are several times the usual, by their buckets."""
    buckets = traffic.totals["inter_token_seconds"]
    weights = fitted.weights / max(float(fitted.weights.sum()), 1e-12)
    usual = buckets.sum / buckets.count - fitted.by_prompt_token * float(weights @ fitted.prompt_tokens)
    found = 0.0
    for low, high, before, count in zip(buckets.bounds, buckets.bounds[1:], buckets.counts, buckets.counts[1:], strict=False):
        if low >= _STALL * usual > 0.0:
            found += (count - before) * ((low + high) / 2 - usual)
    return found


def _evidence(traffic: Traffic, fitted: IterationModel) -> list[Evidence]:
    weights = fitted.weights / max(float(fitted.weights.sum()), 1e-12)
    prompt = float(weights @ fitted.prompt_tokens)
    count = np.maximum(traffic.counts["inter_token_seconds"], 1.0)
    mean = float(weights @ (traffic.sums["inter_token_seconds"] / count))
    rows = [
        Evidence(
            signal="time from one token to the next, mean",
            value=mean,
            threshold=max(mean - fitted.by_prompt_token * prompt, 0.0),
            comparison=">",
            unit="seconds",
            source="threshold: without prompts in the same iteration, fitted",
        ),
        Evidence(
            signal="a prompt of 1,000 tokens delays the next token of all by",
            value=fitted.by_prompt_token * 1000,
            threshold=fitted.by_prompt_token_low * 1000,
            comparison=">=",
            unit="seconds",
            source="threshold: lower end of its 90 % interval",
        ),
        measured("prompt tokens in an iteration, mean", prompt, "tokens", "iterations in which others decode"),
    ]
    sizes = traffic.totals.get("iteration_tokens")
    if sizes is not None and (most := quantile(sizes, 0.99)) is not None:
        rows.append(measured("tokens in an iteration, p99, at most", most.high, "tokens", "iteration histogram"))
    return rows
