"""A run as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from benchmarks.fleet.comparison import Compared

DEAREST = 5
WITHOUT_STORE = "VictoriaMetrics is not installed (Debian: victoria-metrics): nothing was compared"


def text(figures: Mapping[str, float], panels: Mapping[str, float], compared: Compared | None) -> str:
    """Return the figures, the dearest panels and the differences of a run, in Markdown."""
    rows = ["| figure | value |", "|---|---|", *(f"| {name} | {value:,.4g} |" for name, value in figures.items()), ""]
    dearest = sorted(panels.items(), key=lambda item: -item[1])[:DEAREST]
    rows += ["| the dearest panels | seconds |", "|---|---|", *(f"| {name} | {seconds:.3f} |" for name, seconds in dearest), ""]
    return "\n".join([*rows, *(_differences(compared) if compared else [WITHOUT_STORE])])


def _differences(compared: Compared) -> list[str]:
    by_reason = Counter(one.reason or "no reason is known" for one in compared.differences)
    furthest = {
        one.reason: max(each.apart for each in compared.differences if each.reason == one.reason) for one in compared.differences
    }
    same = compared.asked - len(compared.differences)
    rows = [f"{compared.asked} expressions, {compared.answered} with an answer; VictoriaMetrics gives the same for {same}.", ""]
    rows += [f"- {count} differ, by {furthest.get(reason, 0.0):.2g} at most: {reason}" for reason, count in by_reason.most_common()]
    return [*rows, "", *(f"- {one.expression.where}: {one.what}: `{one.expression.text}`" for one in compared.unexplained)]
