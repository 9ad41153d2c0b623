"""State timelines: as long as a value stays there is one band."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from test_preview_fields import ABOUT, panel

from grafana_preview.query import Series
from grafana_preview.state_timeline import draw, runs
from grafana_preview.times import Span
from tachoscope_dashboards.parts.panels import Query, timeline


@given(st.lists(st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.0])), max_size=30))
def test_bands_cover_each_value_once_and_no_gap(values: list[float | None]) -> None:
    covered: list[float | None] = [None] * len(values)
    for value, first, last in runs(values):
        for place in range(first, last + 1):
            assert covered[place] is None
            covered[place] = value
    assert covered == values


def test_a_band_has_the_colour_of_its_meaning_and_ends_a_step_after_its_last_value() -> None:
    drawn = draw(
        panel(timeline("T", ABOUT, [Query("x")], {"0": ("working", "#111111"), "1": ("hung", "#222222")})),
        [Series("rank 0", {}, (1.0, 1.0, 0.0)), Series("rank 1", {}, (0.0, None, 0.0))],
        Span(60.0, 90.0, 15.0),
    )

    assert drawn["rows"] == ["rank 0", "rank 1"]
    assert [(state["text"], state["color"]) for state in drawn["states"]] == [("working", "#111111"), ("hung", "#222222")]
    assert drawn["states"][1]["bands"] == [[0, 60_000.0, 90_000.0]]
    assert drawn["states"][0]["bands"] == [[0, 90_000.0, 90_000.0], [1, 60_000.0, 75_000.0], [1, 90_000.0, 90_000.0]]
