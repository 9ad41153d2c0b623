"""What a server takes, in words and a table. Renders and computes nothing."""

from __future__ import annotations

from math import isfinite
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tachoscope_analyzers.serving.capacity.capacity import Capacity, Point, uncertain
from tachoscope_show.text.units import percent, seconds

_SAME = 0.03
COLUMNS = ("ttft_p50", "ttft_p95", "ttft_p99", "itl_p50", "itl_p95", "itl_p99")
HEADS = ("requests/s", "tokens/s", "decoding", *COLUMNS)


def verdict(found: Capacity) -> str:
    """Return the knee, its interval and what breaks above it, in one sentence."""
    asked = " and ".join(str(one) for one in found.objectives)
    if found.light_load:
        return (
            f"The knee for {asked} is not yet known: the load was {percent(found.light_load)} of it at most "
            f"({found.recorded_rate:.3g} requests a second). Record at two thirds of the load that is too much."
        )
    if not found.knee:
        return f"No rate was found at which {asked} are met: {found.limit} breaks at the lowest that was tried."
    low, high = found.knee_interval
    limit = f"above it {found.limit} breaks" if found.limit else "above it the queue grows without end"
    per = " to each replica" if found.model.replicas > 1 else ""
    return (
        f"One replica meets {asked} up to {found.knee:.3g} requests a second{per} "
        f"(95 % interval {low:.3g} to {high:.3g}); {limit}. Recorded were {found.recorded_rate:.3g}."
    )


def warnings(found: Capacity) -> list[str]:
    """Return what the reader must know before relying on it."""
    rows = []
    if uncertain(found):
        rows.append("The recording leaves the knee open by more than a factor of 2: record longer, or at more load.")
    known = found.model.known_output_tokens
    if found.knee_point is not None and found.knee_point.running > 2 * known:
        rows.append(
            f"At the knee {found.knee_point.running:.0f} requests decode together; the recording shows up to {known:.0f}: "
            "beyond, the cost of an iteration is continued in a straight line."
        )
    return rows


def advice(found: Capacity) -> list[str]:
    """Return replicas and cost, as far as they were asked for."""
    rows = []
    if found.forecast_replicas is not None:
        count, safe = found.forecast_replicas
        safely = f", {safe} by the lower end of the interval" if found.knee_interval[0] else ""
        rows.append(f"{found.forecast_rate:g} requests a second: {count} replicas{safely}")
    if found.cost_per_million_tokens is not None and found.price is not None:
        price = found.price
        rows.append(
            f"{found.cost_per_million_tokens:.2f} {price.currency} for a million output tokens at the knee "
            f"({price.per_hour:g} {price.currency} an hour, {price.provider}, {price.date})"
        )
    if found.admission is not None:
        one = found.admission
        rows.append(
            f"at {one.rate:.3g} requests a second {percent(one.in_time_without)} have their first token in time; "
            f"{percent(one.in_time_with)} if a request that finds {one.queue_limit} waiting is refused"
        )
    return rows


def moved(ratio: float) -> str:
    """Return what a change does to the knee."""
    return "no difference" if abs(ratio - 1) < _SAME else f"{ratio:.2f}x"


def cell(point: Point, name: str) -> str:
    """Return a latency of a point with its unit, `-` if it is not finite."""
    value = point.seconds.get(name, float("nan"))
    return seconds(value) if isfinite(value) else "-"


def cells(point: Point) -> list[str]:
    """Return what stands in a row of the table by rate: rate, output tokens a second, requests in decoding, and latencies."""
    load = [f"{point.rate:.3g}", f"{point.output_tokens_per_second:.0f}", f"{point.running:.1f}"]
    return load + [cell(point, name) for name in COLUMNS]


def mark(point: Point, found: Capacity) -> str:
    """Return whether the objectives are met at a point."""
    at_knee = found.knee and abs(point.rate - found.knee) < 1e-9
    return "knee" if at_knee else "met" if point.met else "broken"


def render(found: Capacity, name: str, out: Console) -> None:
    """Print verdict, warnings and tables of a capacity analysis."""
    out.print(Text(name, style="bold"), Text("  " + verdict(found)), sep="\n", soft_wrap=True)
    for warning in warnings(found):
        out.print(Text(f"  {warning}", style="yellow"), soft_wrap=True)
    out.print()
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in (*HEADS, "objectives"):
        table.add_column(title.replace("_", " "), justify="left" if title == "objectives" else "right", no_wrap=True)
    for point in found.curve:
        table.add_row(*cells(point), mark(point, found))
    if found.curve:
        out.print(table)
    if found.levers:
        out.print("\nwhat moves the knee")
        for lever in found.levers:
            assumed = f"  (assumed: {lever.assumed})" if lever.assumed else ""
            out.print(f"  {moved(lever.ratio):>13}  {lever.what}{assumed}", soft_wrap=True)
    for title, rows in (("", advice(found)), ("measured", found.model.measured), ("assumed", found.model.assumed)):
        if rows:
            out.print(f"\n{title}" if title else "")
        for row in rows:
            out.print(f"  {row}", soft_wrap=True)


def facts(found: Capacity) -> dict[str, Any]:
    """Return it for programs: what is not finite is null."""
    model = found.model
    return {
        "objectives": {one.name: one.seconds for one in found.objectives},
        "knee_requests_per_second": None if found.light_load else found.knee,
        "load_of_knee_at_most": found.light_load or None,
        "knee_interval": None if found.light_load else [value if isfinite(value) else None for value in found.knee_interval],
        "limit": found.limit,
        "saturation_requests_per_second": None if found.light_load else found.saturation,
        "recorded_requests_per_second": found.recorded_rate,
        "replicas_recorded": model.replicas,
        "curve": [_point(point) for point in found.curve],
        "levers": [{"what": one.what, "ratio": one.ratio, "knee": one.knee, "assumed": one.assumed} for one in found.levers],
        "admission": found.admission,
        "forecast_requests_per_second": found.forecast_rate,
        "forecast_replicas": found.forecast_replicas,
        "cost_per_million_output_tokens": found.cost_per_million_tokens,
        "currency": found.price.currency if found.price else None,
        "iteration_seconds": {
            "base": model.engine.cost.base_seconds,
            "prompt_token": model.engine.cost.prompt_token_seconds,
            "output_token": model.engine.cost.output_token_seconds,
        },
        "checks": {name: {"recorded": seen, "replayed": again} for name, (seen, again) in model.checks.items()},
        "warnings": warnings(found),
        "measured": model.measured,
        "assumed": model.assumed,
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "requests_per_second": point.rate,
        "output_tokens_per_second": point.output_tokens_per_second,
        "decoding": point.running,
        "met": point.met,
        "seconds": {name: value if isfinite(value) else None for name, value in point.seconds.items()},
    }
