"""Rows of heatmaps: what is in a bucket is what the next smaller one does not have already."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from test_preview_fields import ABOUT, panel

from grafana_preview.heatmap import buckets, draw
from grafana_preview.query import Series
from grafana_preview.times import Span
from tachoscope_dashboards.parts.panels import Query, heatmap

SPAN = Span(0.0, 30.0, 15.0)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=12))
def test_buckets_add_up_to_what_the_last_one_counted(inside: list[float]) -> None:
    total, found = 0.0, []
    for number, value in enumerate(inside):
        total += value
        le = "+Inf" if number == len(inside) - 1 else str(number)
        found.append(Series(le, {"le": le}, (total,)))

    rows = buckets(found[::-1], "s")

    assert abs(sum(values[0] or 0.0 for _, values in rows) - total) <= 1e-6 * max(total, 1.0)
    assert all(values[0] is not None and values[0] >= 0.0 for _, values in rows)
    assert rows[-1][0] == "+Inf"


def test_a_bucket_that_was_not_counted_is_a_gap() -> None:
    assert buckets([Series("", {"le": "1"}, (2.0, None)), Series("", {"le": "+Inf"}, (5.0, 4.0))], "s") == [
        ("1 s", (2.0, None)),
        ("+Inf", (3.0, 4.0)),
    ]


def test_rows_named_by_numbers_are_in_their_order_from_below_and_others_as_they_come() -> None:
    rows = panel(heatmap("H", ABOUT, Query("x", "{{rank}}"), unit="s"))
    numbered = [Series(name, {}, (1.0, 2.0, 3.0)) for name in ("0", "10", "9")]
    named = [Series(name, {}, (1.0, 2.0, 3.0)) for name in ("rank 0", "rank 10", "rank 9")]

    assert draw(rows, numbered, SPAN)["rows"] == ["0", "9", "10"]
    assert draw(rows, named, SPAN)["rows"] == ["rank 0", "rank 10", "rank 9"]


def test_empty_cells_are_left_out_and_given_ends_of_the_colours_hold() -> None:
    rows = panel(heatmap("H", ABOUT, Query("x"), unit="percentunit", minimum=0.0, maximum=1.0))
    drawn = draw(rows, [Series("a", {}, (0.0, 0.5, None))], SPAN)

    assert drawn["values"] == [[None, 0.5, None]]
    assert drawn["texts"] == [["", "50%", ""]]
    assert drawn["range"] == [0.0, 1.0]
