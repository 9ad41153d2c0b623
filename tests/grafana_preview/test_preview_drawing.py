"""What is the same of all panels that are drawn."""

from __future__ import annotations

import time
from types import SimpleNamespace

from test_preview_fields import ABOUT, panel

from grafana_preview import units
from grafana_preview.drawing import draw
from grafana_preview.query import Series
from grafana_preview.times import Span
from tachoscope_dashboards.parts.panels import Query, stat


def test_how_long_ago_a_time_is_is_told_as_of_the_end_of_what_is_looked_at() -> None:
    started = panel(stat("Started", ABOUT, Query("a", instant=True), unit="dateTimeFromNow"))
    found = [Series("", {}, (880_000.0,))]
    asked = SimpleNamespace(series=lambda _: found, span=Span(1.0, 1000.0, 15.0))

    drawn = draw(started, asked)  # type: ignore[arg-type]

    assert [one["text"] for one in drawn["items"]] == ["2 minutes ago"]
    assert units.text((time.time() - 120.0) * 1000, "dateTimeFromNow") == "2 minutes ago"
