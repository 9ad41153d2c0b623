"""What the queries of a panel give: series with names, on the times of the panel or of now."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grafana_preview import interpolate as filling
from grafana_preview.interpolate import Choice
from grafana_preview.times import Span
from tachoscope_core.net import prometheus as prometheus_query

Json = Mapping[str, Any]
_LABEL = re.compile(r"\{\{\s*(.+?)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Series:
    """One series. values: at each of the panel's times, or one, of now; None where there is none. query: its refId."""

    name: str
    labels: Mapping[str, str]
    values: tuple[float | None, ...]
    query: str = "A"


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks: of which Prometheus, for what time, with which choice of variables."""

    url: str
    span: Span
    choices: Sequence[Choice]

    def series(self, panel: Json) -> list[Series]:
        """Return the series of a panel's queries, in their order.

        Raises:
            TachoscopeError: Prometheus refuses one, or does not answer.
        """
        return [one for target in panel.get("targets", []) if target.get("expr") for one in self._of(target)]

    def _of(self, target: Json) -> list[Series]:
        expr = filling.query(target["expr"], self.choices, self.span)
        legend, name = str(target.get("legendFormat") or ""), str(target["refId"])
        if target.get("instant"):
            rows = _vector(prometheus_query.instant_query(self.url, expr, at=self.span.end))
            return [Series(name_of(row["metric"], legend, expr), row["metric"], (_value(row["value"][1]),), name) for row in rows]
        times = self.span.times()
        rows = prometheus_query.range_query(self.url, expr, start=times[0], end=times[-1], step=self.span.step)
        return [
            Series(name_of(row["metric"], legend, expr), row["metric"], _on(times, row["values"], self.span.step), name)
            for row in rows
        ]


def name_of(labels: Mapping[str, str], legend: str, expr: str) -> str:
    """Return the name of a series: the legend with labels filled in, else the series as PromQL writes it, else the query."""
    if legend and legend != "__auto":
        return _LABEL.sub(lambda found: labels.get(found[1], ""), legend)
    inner = ", ".join(f'{label}="{value}"' for label, value in sorted(labels.items()) if label != "__name__")
    return labels.get("__name__", "") + (f"{{{inner}}}" if inner else "") or expr


def last(values: Sequence[float | None]) -> float | None:
    """Return the last value that is a number."""
    return next((value for value in reversed(values) if value is not None), None)


def _vector(rows: Sequence[Any]) -> Sequence[Json]:
    """Return the rows; a scalar, which is a time and a value, as a row without labels."""
    return [{"metric": {}, "value": rows}] if rows and not isinstance(rows[0], Mapping) else rows


def _on(times: Sequence[float], values: Sequence[Sequence[Any]], step: float) -> tuple[float | None, ...]:
    found: list[float | None] = [None] * len(times)
    for time, value in values:
        place = round((float(time) - times[0]) / step)
        if 0 <= place < len(found):
            found[place] = _value(value)
    return tuple(found)


def _value(text: str) -> float | None:
    value = float(text)
    return None if math.isnan(value) else value
