"""Which class of bottleneck explains a broken objective: that of the largest part of the time that the objective counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.serving.classes.states import SecondsByState
from tachoscope_analyzers.serving.records.traffic import Traffic, Vector
from tachoscope_core.report.report import Evidence
from tachoscope_core.report.serving import ObjectiveResult
from tachoscope_core.servers.histogram_quantiles import quantile

_WAITING = ("queue_saturation", "kv_pressure", "cold_start")
_DECODING = ("prefill_interference", "kv_pressure", "decode_bandwidth")
_OF_ALL = (*_WAITING, "prefill_interference")
_CLASSES = {
    "queue_seconds": _WAITING,
    "first_token_seconds": _WAITING,
    "inter_token_seconds": _DECODING,
    "output_token_seconds": _DECODING,
    "request_seconds": _OF_ALL,
    "outcomes": _WAITING,
}


def explained(
    results: Sequence[ObjectiveResult], candidates: Sequence[Candidate], traffic: Traffic, spent: SecondsByState
) -> tuple[list[ObjectiveResult], list[Candidate]]:
    """Return the objectives with what explains those that are broken, and the candidates, of which these are warnings at least."""
    found, raised = list[ObjectiveResult](), list(candidates)
    for result in results:
        if result.state != "broken":
            found.append(result)
            continue
        where = _where(result, traffic, spent)
        chosen = None if where == "prefill" else _largest(raised, _CLASSES.get(result.signal, ()))
        if chosen is not None and where == "decode" and _share(chosen, spent.requests["decode"]) < threshold("small_share"):
            chosen = None  # decoding is as slow without it
        slug = "" if chosen is None else chosen.slug
        found.append(msgspec.structs.replace(result, explained_by=slug, where=where))
        raised = [_raised(one, result, spent) if one is chosen else one for one in raised]
    return found, raised


def _largest(candidates: Sequence[Candidate], classes: Sequence[str]) -> Candidate | None:
    there = [one for one in candidates if one.slug in classes]
    return max(there, key=lambda one: float(one.seconds.sum()), default=None)


def _raised(candidate: Candidate, result: ObjectiveResult, spent: SecondsByState) -> Candidate:
    """Return a cause with the broken objective as evidence; a warning even if its share of all time is small."""
    evidence = Evidence(
        signal=f"good events of the objective {result.name}",
        value=result.good or 0.0,
        threshold=result.target,
        comparison="<",
        unit="ratio",
        source=f"{result.bad:,.0f} of {result.total:,.0f} are bad",
    )
    is_small = _share(candidate, spent.request_seconds) < threshold("warning_share")
    level = candidate.level or ("warning" if is_small else None)
    return replace(candidate, level=level, evidence=[evidence, *candidate.evidence])


def _share(candidate: Candidate, whole: Vector) -> float:
    return float(candidate.seconds.sum()) / max(float(whole.sum()), 1e-12)


def _where(result: ObjectiveResult, traffic: Traffic, spent: SecondsByState) -> str:
    """Return the state in which requests are for most of the time that an objective counts; empty: not known."""
    if result.signal in {"inter_token_seconds", "output_token_seconds"}:
        return "decode"
    if result.signal != "first_token_seconds":
        return ""
    seconds = {state: float(spent.requests[state].sum()) for state in ("queued", "cold_start", "prefill")}
    if not any(seconds.values()):
        return ""
    # The objective is on the slowest: where their quantiles are known, these say more than the mean.
    parts = (("queued", "queue_seconds"), ("prefill", "prefill_seconds"))
    tails = {state: _tail(traffic, name, result.target) for state, name in parts}
    if all(value is not None for value in tails.values()) and not seconds["cold_start"]:
        return max(tails, key=lambda state: tails[state] or 0.0)
    return max(seconds, key=lambda state: seconds[state])


def _tail(traffic: Traffic, name: str, share: float) -> float | None:
    """Return a quantile; None where the first bucket holds it, so that it may be anything."""
    buckets = traffic.totals.get(name)
    found = quantile(buckets, share) if buckets is not None else None
    return found.value if found is not None and found.low > 0.0 else None
