"""Rows of several queries are joined, chosen and named as Grafana's transformations do it."""

from __future__ import annotations

from typing import Any

from test_preview_fields import ABOUT, panel

from grafana_preview.query import Asked, Series
from grafana_preview.tables import draw
from grafana_preview.times import Span
from tachoscope_dashboards.parts.panels import Column, Link, Query, table
from tachoscope_dashboards.parts.tables import NOTHING

ASKED = Asked("", Span(1.0, 3601.0, 15.0), ())


def series(query: str, value: float | None, **labels: str) -> Series:
    return Series("", labels, (value,), query)


def texts(drawn: dict[str, Any]) -> list[list[str]]:
    return [[cell["text"] for cell in row] for row in drawn["rows"]]


NODES = panel(
    table(
        "Nodes",
        ABOUT,
        [Query("a"), Query("b")],
        [Column("node", "Node", link=Link("To", "/d/n?n=${__data.fields.Node}&h=${__data.fields.Heat}")), Column("A", "Up"),
         Column("B", "Heat", unit="celsius")],
        sort="Heat",
    )
)  # fmt: skip


def test_rows_with_the_same_labels_are_one_row_sorted_with_what_is_missing_last() -> None:
    found = [series("A", 1.0, node="a", job="x"), series("A", 0.0, node="b", job="x"), series("B", 9.0, node="b", job="x")]
    found += [series("B", 70.0, node="a", job="x"), series("A", 1.0, node="c", job="x")]
    drawn = draw(NODES, found, ASKED)

    assert [column["title"] for column in drawn["columns"]] == ["Node", "Up", "Heat"]
    assert texts(drawn) == [["a", "1", "70 °C"], ["b", "0", "9 °C"], ["c", "1", NOTHING]]
    assert drawn["rows"][0][0]["link"] == "/d/n?n=a&h=70%20%C2%B0C"
    assert drawn["sorted"] == [["Heat", True]]


def test_rows_that_differ_in_a_label_are_joined_only_where_that_was_left_out_before_as_in_grafana() -> None:
    found = [series("A", 1.0, node="a", __name__="up"), series("B", 70.0, node="a", __name__="heat")]
    steps = {one["id"]: one for one in NODES["transformations"]}

    def order(*names: str) -> dict[str, Any]:
        return {**NODES, "transformations": [steps[name] for name in names]}

    late = draw(order("merge", "filterFieldsByName", "organize"), found, ASKED)
    early = draw(order("filterFieldsByName", "merge", "organize"), found, ASKED)

    assert texts(late) == [["a", NOTHING, "70 °C"], ["a", "1", NOTHING]]
    assert texts(early) == [["a", "1", "70 °C"]]


def test_a_row_of_fewer_labels_belongs_to_each_row_that_it_does_not_contradict() -> None:
    found = [series("A", 1.0, node="a", gpu="0"), series("A", 2.0, node="a", gpu="1"), series("B", 70.0, node="a")]
    assert texts(draw(NODES, found, ASKED)) == [["a", "1", "70 °C"], ["a", "2", "70 °C"]]


def test_a_query_that_gives_nothing_has_no_column() -> None:
    drawn = draw(NODES, [series("A", 1.0, node="a")], ASKED)
    assert [column["title"] for column in drawn["columns"]] == ["Node", "Up"]


def test_a_single_query_has_a_column_named_value() -> None:
    one = panel(
        table("T", ABOUT, [Query("a")], [Column("rank", "Rank"), Column("A", "Seconds", unit="s")], sort="Rank", descending=False)
    )
    found = [series("A", 0.5, rank="b", gone="x"), series("A", None, rank="a", gone="x")]
    assert texts(draw(one, found, ASKED)) == [["a", NOTHING], ["b", "500 ms"]]


def test_a_transformation_that_the_preview_does_not_know_is_named() -> None:
    other = {**NODES, "transformations": [{"id": "groupBy", "options": {}}]}
    assert draw(other, [series("A", 1.0, node="a")], ASKED)["notes"] == ["transformation groupBy"]
