"""From what happened on a server to the report on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from tachoscope_analyzers.findings.make import Candidate, Series, findings
from tachoscope_analyzers.serving.classes import cold_start as start
from tachoscope_analyzers.serving.classes import decode_bandwidth as bandwidth
from tachoscope_analyzers.serving.classes import prefill_interference as interference
from tachoscope_analyzers.serving.classes import queue_and_kv_waiting as waiting
from tachoscope_analyzers.serving.classes import unknown
from tachoscope_analyzers.serving.classes.broken_objectives import explained
from tachoscope_analyzers.serving.classes.iteration_cost import IterationModel
from tachoscope_analyzers.serving.classes.states import SecondsByState, spent, tells_phases
from tachoscope_analyzers.serving.records.traffic import Traffic, Vector
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Finding, NotMeasured, QualityNote, Report, Source, StepSeconds, Window
from tachoscope_core.report.serving import Latency, LatencySeconds, ObjectiveResult, Serving
from tachoscope_core.servers import OWN
from tachoscope_core.servers.histogram_quantiles import Quantile, quantile
from tachoscope_core.servers.snapshot import Buckets

_LATENCIES: tuple[tuple[Latency, str], ...] = (
    ("queue", "queue_seconds"),
    ("first_token", "first_token_seconds"),
    ("inter_token", "inter_token_seconds"),
    ("output_token", "output_token_seconds"),
    ("request", "request_seconds"),
)
CLASSES = ("queue_saturation", "kv_pressure", "prefill_interference", "decode_bandwidth", "cold_start")
"""The classes that are told apart here; besides `unknown`."""
_PRODUCTIVE = ("prefill", "decode")
_SAY_PHASES = "request.enter() or engine.batch(running=..., waiting=...) says it"
_FEW_REQUESTS = 20
_FEW_FAIL = 0.01


def analyze_traffic(
    traffic: Traffic,
    *,
    job: str,
    sources: Sequence[Source],
    peak_bytes_per_second: float = 0.0,
    objectives: Sequence[ObjectiveResult] = (),
) -> Report:
    """Judge a server by what happened on it.

    Args:
        job: what the report is called. sources: where the facts came from.
        peak_bytes_per_second: of the memory of one of its devices; 0: not known. objectives: how it met its own.

    Raises:
        TachoscopeError: nothing happened in the window: neither a request nor a start.
    """
    books = spent(traffic)
    requests = served(traffic)
    total = float(books.request_seconds.sum())
    fitted = interference.fitted_pace(traffic, books)
    found, results = _findings(traffic, books, fitted, peak_bytes_per_second, requests, objectives)
    if (not total or requests < 1.0) and not found:
        raise TachoscopeError(
            f"{job} received no requests in {traffic.wall_seconds:.0f} s, so there is nothing to analyze",
            fix="repeat under load, or for longer: --for 300s",
        )
    told = traffic.server != OWN or bool(traffic.engine_states)  # of requests alone nobody can tell what engines did
    ledgers = [ledger for ledger in books.ledgers(engines=told) if ledger.wall_seconds > 0.0]
    lost = sum(finding.seconds_per_step * requests for finding in found if finding.class_ == "prefill_interference")
    productive = sum(ledgers[0].states.get(state, 0.0) for state in _PRODUCTIVE) - lost
    return Report(
        job=job,
        window=Window(start=traffic.start, end=traffic.end, steps=round(requests)),
        ranks=traffic.engines,
        sources=list(sources),
        step_seconds=_request_seconds(traffic, total, requests),
        ledgers=ledgers,
        goodput=None if not tells_phases(traffic) else max(productive, 0.0) / total if total else 0.0,
        findings=found,
        not_measured=_not_measured(traffic, fitted, peak_bytes_per_second),
        quality=_quality(traffic, requests),
        serving=_serving(traffic, requests, results),
    )


def served(traffic: Traffic) -> float:
    """Return how many requests ended in the window."""
    return traffic.count("request_seconds") or sum(traffic.outcomes.values())


def _findings(
    traffic: Traffic,
    books: SecondsByState,
    fitted: IterationModel | None,
    peak: float,
    requests: float,
    objectives: Sequence[ObjectiveResult],
) -> tuple[list[Finding], list[ObjectiveResult]]:
    """Return the findings, and the objectives with the classes that explain those that are broken."""
    window = f"{traffic.wall_seconds:.0f} s"
    of_requests: list[Candidate] = [
        *waiting.candidates(traffic, books, noticed=any(one.state == "broken" for one in objectives)),
        *interference.candidates(traffic, books, fitted),
        *bandwidth.candidates(traffic, books, peak),
        *start.candidates(traffic, books, of_requests=True),
        *unknown.candidates(traffic, books),
    ]
    results, of_requests = explained(objectives, of_requests, traffic, books)
    of_engines = [*start.candidates(traffic, books, of_requests=False), *unknown.no_answer(traffic, books)]
    found = [
        *_judged(of_requests, books.request_seconds, "time of requests", window, requests),
        *_judged(of_engines, books.engine_seconds, "time of engines", window, requests),
    ]
    return sorted(found, key=lambda finding: -finding.share), results


def _judged(candidates: list[Candidate], whole: Vector, name: str, window: str, requests: float) -> list[Finding]:
    """Return findings with their loss per request. Intervals in which nothing was at work tell nothing, and are left out."""
    used = whole > 0
    if not candidates or not used.any():
        return []
    kept = [replace(candidate, seconds=candidate.seconds[used]) for candidate in candidates]
    found = findings(kept, Series(whole[used], 0, int(used.sum()) - 1, "server metrics", name, window))
    total = float(whole.sum())
    return [msgspec.structs.replace(finding, seconds_per_step=finding.share * total / max(requests, 1.0)) for finding in found]


def _request_seconds(traffic: Traffic, total: float, requests: float) -> StepSeconds:
    """Return the distribution of a request's time; where the server keeps no histogram of it all quantiles are the mean."""
    buckets = traffic.totals.get("request_seconds")
    mean = buckets.sum / buckets.count if buckets and buckets.count else total / max(requests, 1.0)
    found = [quantile(buckets, share) if buckets else None for share in (0.5, 0.95, 0.99)]
    p50, p95, p99 = (mean if one is None else one.value for one in found)
    return StepSeconds(mean=mean, p50=p50, p95=p95, p99=p99)


def _not_measured(traffic: Traffic, fitted: IterationModel | None, peak: float) -> list[NotMeasured]:
    """Return the classes of inference of which the server does not say enough. Those of training do not apply."""
    said = {*traffic.gauges, *traffic.counters, *traffic.sums}
    if traffic.server == OWN and not tells_phases(traffic):  # of its own names all are there, with nothing in them
        said -= {"queue_seconds", "preemptions_total"}
    queue = "requests waiting, or time in the queue" + (f" ({_SAY_PHASES})" if traffic.server == OWN else "")
    needs = {
        "queue_saturation": "" if {"requests_waiting", "queue_seconds"} & said else queue,
        "kv_pressure": "" if "preemptions_total" in said else "preemptions",
        "prefill_interference": _missing_interference(said) if fitted is None else "",
        "decode_bandwidth": _missing_bandwidth(traffic, peak),
    }
    return [NotMeasured(class_=slug, missing=missing) for slug, missing in needs.items() if missing]


def _missing_interference(said: set[str]) -> str:
    if "inter_token_seconds" in said and {"iteration_tokens", "prompt_tokens_total"} & said:
        return "enough times at which few prompts were computed, to compare the others with"
    return "times between tokens, and prompt tokens computed"


def _missing_bandwidth(traffic: Traffic, peak: float) -> str:
    if not traffic.total("read_bytes_total"):
        return "bytes read from device memory (vLLM counts them with --enable-mfu-metrics)"
    return "" if peak else "peak rate of the device's memory (--device NAME)"


def _quality(traffic: Traffic, requests: float) -> list[QualityNote]:
    notes = []
    if requests < _FEW_REQUESTS:
        what = f"{requests:.0f} request{'' if requests == 1 else 's'} ended in {traffic.wall_seconds:.0f} s"
        notes.append(QualityNote(what=what, severity="limited", means="shares and quantiles are of few requests; look for longer"))
    if traffic.count("request_seconds") and not tells_phases(traffic):
        how = f": {_SAY_PHASES}" if traffic.server == OWN else ""
        what = f"the server does not say in which phase its requests were{how}"
        notes.append(QualityNote(what=what, severity="limited", means="where they waited is not known; times and outcomes are"))
    if traffic.faults and traffic.server != OWN:
        time, why = traffic.faults[0]
        looks = len(traffic.seconds) + 1
        what = f"{len(traffic.faults)} of {looks} samples were not answered, the first {time - traffic.start:.0f} s in"
        notes.append(QualityNote(what=f"{what}: {why}", severity="limited", means="what happened between them is not known"))
    failed = {outcome: count for outcome, count in traffic.outcomes.items() if outcome != "ok" and count}
    ended = sum(traffic.outcomes.values())
    if failed and sum(failed.values()) >= _FEW_FAIL * ended:
        which = ", ".join(f"{count:.0f} {outcome.replace('_', ' ')}" for outcome, count in failed.items())
        what = f"{sum(failed.values()):.0f} of {ended:.0f} requests did not end well: {which}"
        notes.append(QualityNote(what=what, severity="limited", means="latencies and goodput are of those worked on"))
    return notes


def _serving(traffic: Traffic, requests: float, objectives: list[ObjectiveResult]) -> Serving:
    wall = max(traffic.wall_seconds, 1e-9)
    gauges = traffic.gauges
    running, queued, usage = (gauges.get(name) for name in ("requests_running", "requests_waiting", "kv_cache_usage_ratio"))
    preemptions = traffic.counters.get("preemptions_total")
    rates = waiting.rates(traffic)
    return Serving(
        server=traffic.server,
        models=list(traffic.models),
        engines=traffic.engines,
        looks=len(traffic.seconds) + 1,
        unanswered=len(traffic.faults),
        arrived_per_second=rates[0] if rates else None,
        served_per_second=requests / wall,
        tokens_in_per_second=traffic.total("prompt_tokens_total") / wall,
        tokens_out_per_second=traffic.total("generation_tokens_total") / wall,
        outcomes={outcome: count for outcome, count in traffic.outcomes.items() if count},
        latencies=[_latency(name, buckets) for name, key in _LATENCIES if (buckets := traffic.totals.get(key)) and buckets.count],
        running_mean=None if running is None else float(np.average(running, weights=traffic.seconds)),
        waiting_mean=None if queued is None else float(np.average(queued, weights=traffic.seconds)),
        waiting_last=None if queued is None else float(queued[-1]),
        kv_cache_usage_max=None if usage is None else float(usage.max()),
        preemptions=None if preemptions is None else float(preemptions.sum()),
        objectives=objectives,
    )


def _latency(name: Latency, buckets: Buckets) -> LatencySeconds:
    p50, p95, p99 = (_bounds(quantile(buckets, share)) for share in (0.5, 0.95, 0.99))
    return LatencySeconds(name=name, count=buckets.count, mean=buckets.sum / buckets.count, p50=p50, p95=p95, p99=p99)


def _bounds(found: Quantile | None) -> tuple[float, float | None] | None:
    return None if found is None else (found.low, None if math.isinf(found.high) else found.high)
