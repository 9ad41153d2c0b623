"""The part of a report that is about inference, in words: for terminal and page alike."""

from __future__ import annotations

from collections.abc import Iterator

from tachoscope_core.report.report import Finding, Report
from tachoscope_core.report.serving import LatencySeconds, ObjectiveResult, Serving
from tachoscope_core.servers import OWN, catalogue
from tachoscope_show.text.units import percent, seconds

_LATENCY_NAMES = {
    "queue": "in the queue",
    "first_token": "to the first token (TTFT)",
    "inter_token": "from token to token (ITL)",
    "output_token": "per output token (TPOT)",
    "request": "whole request",
}
LATENCY_HEAD = ("", "mean", "p50", "p95", "p99")


def summary(report: Report, serving: Serving) -> str:
    """Return what was served, in one line."""
    models = ", ".join(serving.models[:3]) + (", ..." if len(serving.models) > 3 else "")
    plural = "" if report.window.steps == 1 else "s"
    served = f"{report.window.steps:,} request{plural} in {report.window.end - report.window.start:.0f} s"
    make = "" if serving.server == OWN else catalogue(serving.server).title  # our own probe is not a make of a server
    return f"{' on '.join(filter(None, (models, make)))}   {served}"


def share_of(finding: Finding) -> str:
    """Return what a finding's share is of: the time of requests, or of engines."""
    return finding.evidence[0].signal.removeprefix("share of the ")


def loss(finding: Finding, report: Report) -> str:
    """Return what a finding lost: of the time of requests for each of them, of that of engines in all."""
    engines = next((ledger.wall_seconds for ledger in report.ledgers if ledger.unit == "engine"), 0.0)
    if share_of(finding).endswith("engines"):
        return f"{seconds(finding.share * engines)} of {seconds(engines)}"
    return f"{seconds(finding.seconds_per_step)} a request"


def rates(serving: Serving) -> str:
    """Return what came and what went, a second."""
    arrived = "" if serving.arrived_per_second is None else f"{serving.arrived_per_second:.3g} requests a second arrived, "
    tokens = f"{serving.tokens_in_per_second:,.0f} prompt and {serving.tokens_out_per_second:,.0f} output tokens a second"
    return f"{arrived}{serving.served_per_second:.3g} were served; {tokens}"


def facts(serving: Serving) -> Iterator[tuple[str, str]]:
    """Yield what is known of outcomes, queue and cache, each with its name."""
    outcomes = ", ".join(f"{count:,.0f} {outcome.replace('_', ' ')}" for outcome, count in serving.outcomes.items())
    if outcomes:
        yield "outcomes", outcomes
    for result in serving.objectives:
        yield "objective", objective(result)
    if serving.running_mean is not None:
        waiting = (
            "" if serving.waiting_mean is None else f"; waiting {serving.waiting_mean:.1f}, at the end {serving.waiting_last:.0f}"
        )
        yield "requests", f"running {serving.running_mean:.1f} on average{waiting}"
    if serving.kv_cache_usage_max is not None:
        preemptions = "" if serving.preemptions is None else f", {serving.preemptions:.0f} preemptions"
        yield "KV cache", f"{percent(serving.kv_cache_usage_max)} in use at most{preemptions}"


def broken(serving: Serving) -> list[ObjectiveResult]:
    """Return the objectives that are broken."""
    return [result for result in serving.objectives if result.state == "broken"]


def objective(result: ObjectiveResult) -> str:
    """Return how an objective was met, by how much it is broken, and what explains that."""
    bound = "" if result.bound_seconds is None else f" within {seconds(result.bound_seconds)}"
    if result.good is None:
        return f"{result.name}: not known: the server does not count what is{bound or ' bad'}"
    said = f"{result.name}: {_share(result.good)} of {result.total:,.0f}{bound}, target {result.target * 100:g} %"
    if result.state == "too_few":
        return f"{said}: not known: only {result.bad:,.0f} bad"
    if result.state == "met":
        return f"{said}: met"
    times = result.bad / max(result.total * (1.0 - result.target), 1e-12)
    return f"{said}: broken, {times:.1f} times the bad events that it allows; {_explanation(result)}"


def broken_in_short(result: ObjectiveResult) -> str:
    """Return a broken objective with its good share, its target and what explains it."""
    bound = "" if result.bound_seconds is None else f" within {seconds(result.bound_seconds)}"
    return f"{result.name} ({_share(result.good or 0.0)}{bound}, target {result.target * 100:g} %; {_explanation(result)})"


def _explanation(result: ObjectiveResult) -> str:
    return result.explained_by or (f"most of it is {result.where}" if result.where else "no class of bottleneck explains it")


def _share(ratio: float) -> str:
    """Return a ratio in percent, never rounded up to what it is not."""
    return f"{int(ratio * 10_000) / 100:g} %"


def latency(row: LatencySeconds) -> tuple[str, ...]:
    """Return a row of latencies: the mean is exact, a quantile lies between the bounds of its bucket."""
    return _LATENCY_NAMES[row.name], seconds(row.mean), *(_between(value) for value in (row.p50, row.p95, row.p99))


def _between(value: tuple[float, float | None] | None) -> str:
    if value is None:
        return "not known"
    low, high = value
    if high is None:
        return f"> {seconds(low)}"
    if low == high:
        return seconds(low)
    return f"{seconds(low)} to {seconds(high)}" if low else f"< {seconds(high)}"
