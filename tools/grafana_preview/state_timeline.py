"""State timelines: a band a series, in the colour of what its value means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from grafana_preview import fields
from grafana_preview.query import Series
from grafana_preview.times import Span

Json = Mapping[str, Any]
MOST_ROWS = 200


def draw(panel: Json, found: Sequence[Series], span: Span) -> dict[str, Any]:
    """Return the bands by state: row, and from when to when in milliseconds; rows from the top."""
    times = span.times()
    states: dict[str, dict[str, Any]] = {}
    for row, one in enumerate(found[:MOST_ROWS]):
        known = fields.of(panel, one.name)
        for value, start, end in runs(one.values):
            text = known.text(value)
            state = states.setdefault(text, {"text": text, "color": known.color(value), "bands": []})
            state["bands"].append([row, times[start] * 1000, min(times[end] + span.step, span.end) * 1000])
    ordered = sorted(states.values(), key=lambda state: _place(panel, state["text"]))
    for number, state in enumerate(ordered):
        state["color"] = state["color"] or fields.series_color(fields.Field(), number)
    left = [f"the first {MOST_ROWS} of {len(found)} series"] if len(found) > MOST_ROWS else []
    return {"kind": "bands", "rows": [one.name for one in found[:MOST_ROWS]], "states": ordered, "notes": left}


def runs(values: Sequence[float | None]) -> list[tuple[float, int, int]]:
    """Return each value that stays, with the first and last place where it does; where there is none is a gap."""
    found, place = [], 0
    for value, same in groupby(values):
        length = len(list(same))
        if value is not None:
            found.append((value, place, place + length - 1))
        place += length
    return found


def _place(panel: Json, text: str) -> int:
    """Return where a state stands in the list of meanings, which is their order in the legend."""
    texts = [meaning.text for meaning in fields.of(panel, "").meanings.values()]
    return texts.index(text) if text in texts else len(texts)
