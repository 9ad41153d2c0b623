"""A run as text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from benchmarks.fleet.comparison import Compared

DEAREST = 5
NOT_COMPARED = "Nothing was compared: VictoriaMetrics is not installed (Debian: victoria-metrics), or scrapes are too seldom"


def text(figures: Mapping[str, float], panels: Mapping[str, float], compared: Compared | None) -> str:
    """Return the figures, the dearest panels and the differences of a run, in Markdown."""
    rows = ["| figure | value |", "|---|---|", *(f"| {name} | {_number(value)} |" for name, value in figures.items()), ""]
    dearest = sorted(panels.items(), key=lambda item: -item[1])[:DEAREST]
    rows += [
        "| the dearest panels | processor seconds |",
        "|---|---|",
        *(f"| {name} | {seconds:.3f} |" for name, seconds in dearest),
        "",
    ]
    return "\n".join([*rows, *(_differences(compared) if compared else [NOT_COMPARED])])


def _differences(compared: Compared) -> list[str]:
    by_reason = defaultdict[str, list[float]](list)
    for one in compared.differences:
        by_reason[one.reason or "no reason is known"].append(one.apart)
    same = compared.asked - len(compared.differences)
    return [
        f"{compared.asked} expressions, {compared.answered} with an answer; VictoriaMetrics gives the same for {same}.",
        "",
        *(f"- {len(apart)} differ, by {max(apart):.2g} at most: {reason}" for reason, apart in by_reason.items()),
        "",
        *(f"- {one.expression.where}: {one.what}: `{one.expression.text}`" for one in compared.unexplained),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000.0 else f"{value:.3g}"
