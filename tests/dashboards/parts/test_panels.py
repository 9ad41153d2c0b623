"""Panels: what is the same of all, and what each kind has of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planted import POLICY, filled, wrong
from round_trip import losses
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.parts import panels
from tachoscope_dashboards.parts.board import Board
from tachoscope_dashboards.parts.grafana_json import to_json
from tachoscope_dashboards.parts.panels import ColorStep, Column, Link, PanelText, PlacedPanel, Query

ABOUT = PanelText("Nodes that are up.", "all of them", "look at the others", "no agent is scraped")
ONE = Query("up", "{{instance}}")
LINK = Link("There", "https://example.com")
BELOW = (ColorStep(float("-inf"), palette.BAD), ColorStep(0.9, palette.OK))
ASKING = {
    "timeseries": lambda: panels.timeseries("T", ABOUT, [ONE], unit="s", links=[LINK]),
    "stat": lambda: panels.stat("T", ABOUT, ONE, unit="s", links=[LINK]),
    "table": lambda: panels.table("T", ABOUT, [ONE], [Column("instance", "Node")], links=[LINK]),
    "bargauge": lambda: panels.bars("T", ABOUT, ONE, unit="s", links=[LINK]),
    "heatmap": lambda: panels.heatmap("T", ABOUT, ONE, unit="s", links=[LINK]),
    "state-timeline": lambda: panels.timeline("T", ABOUT, [ONE], {"1": ("up", palette.OK)}, links=[LINK]),
}


def json_of(placed: PlacedPanel) -> dict[str, Any]:
    """Return a panel as a board has it."""
    board = Board("x", "X", "Is it?", "", (), (placed,))
    assert losses(to_json(board)) == []
    return to_json(board)["panels"][1]


@pytest.mark.parametrize("kind", ASKING)
def test_each_panel_says_what_it_is_what_to_do_and_why_it_is_empty(kind: str) -> None:
    found = json_of(ASKING[kind]())

    assert found["type"] == kind
    assert found["title"] == "T"
    assert found["description"] == "Nodes that are up.\n\n**Healthy:** all of them\n\n**Otherwise:** look at the others"
    assert found["fieldConfig"]["defaults"]["noValue"] == "no agent is scraped"
    assert found["fieldConfig"]["defaults"]["unit"]
    assert found["links"] == [{"title": "There", "url": "https://example.com", "targetBlank": True}]
    assert found["datasource"] == found["targets"][0]["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("kind", ASKING)
def test_what_grafanalib_writes_for_grafanas_of_before_is_not_in_it(kind: str) -> None:
    relics = {"span", "height", "editable", "error", "minSpan", "repeat", "cards", "styles", "valueMaps", "nullPointMode"}
    found = json_of(ASKING[kind]())

    assert not relics & found.keys()
    assert None not in found.values()
    assert {"hide", "intervalFactor", "step", "metric", "interval"} & found["targets"][0].keys() == set()


def test_queries_are_named_in_order_and_are_one_line() -> None:
    found = json_of(panels.timeseries("T", ABOUT, [Query("a\n  +  b"), Query("c", name="X"), Query("d", "{{e}}")], unit="s"))

    assert [(one["refId"], one["expr"], one["legendFormat"]) for one in found["targets"]] == [
        ("A", "a + b", "__auto"),
        ("X", "c", "__auto"),
        ("C", "d", "{{e}}"),
    ]


def test_a_query_is_asked_over_time_or_for_now_and_never_both() -> None:
    def ways(placed: PlacedPanel) -> set[tuple[bool, bool]]:
        return {(one["instant"], one["range"]) for one in json_of(placed)["targets"]}

    assert ways(panels.stat("T", ABOUT, ONE, unit="s")) == {(False, True)}
    assert ways(panels.stat("T", ABOUT, Query("up", instant=True), unit="s")) == {(True, False)}
    assert ways(panels.table("T", ABOUT, [ONE], [])) == ways(panels.bars("T", ABOUT, ONE, unit="s")) == {(True, False)}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((), [(None, palette.SERIES[0])]),
        (
            (ColorStep(1.0, palette.WARN), ColorStep(2.0, palette.BAD)),
            [(None, palette.OK), (1.0, palette.WARN), (2.0, palette.BAD)],
        ),
        (BELOW, [(None, palette.BAD), (0.9, palette.OK)]),
    ],
)
def test_the_lowest_colour_has_no_value(steps: tuple[ColorStep, ...], expected: list[tuple[float | None, str]]) -> None:
    found = json_of(panels.stat("T", ABOUT, ONE, unit="s", steps=steps))["fieldConfig"]["defaults"]["thresholds"]["steps"]

    assert [(one["value"], one["color"]) for one in found] == expected


def test_colours_of_a_column_may_begin_at_minus_infinity_too() -> None:
    columns = [Column("instance", "Node"), Column("A", "Up", "percentunit", steps=BELOW)]
    found = json_of(panels.table("T", ABOUT, [ONE], columns))
    (thresholds,) = [one["value"] for one in found["fieldConfig"]["overrides"][1]["properties"] if one["id"] == "thresholds"]

    assert [(one["value"], one["color"]) for one in thresholds["steps"]] == [(None, palette.BAD), (0.9, palette.OK)]
    json.dumps(found, allow_nan=False)


def test_a_series_has_the_colour_of_its_legend() -> None:
    found = json_of(panels.timeseries("T", ABOUT, [ONE], unit="s", stacked=True, colors=palette.STATE_COLORS))
    colors = {one["matcher"]["options"]: one["properties"][0]["value"]["fixedColor"] for one in found["fieldConfig"]["overrides"]}

    assert colors == palette.STATE_COLORS
    assert found["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"


@pytest.mark.parametrize(("style", "points", "fill"), [("line", "never", 0), ("bars", "never", 80), ("points", "always", 0)])
def test_what_happens_now_and_then_can_be_seen(style: Any, points: str, fill: int) -> None:
    custom = json_of(panels.timeseries("T", ABOUT, [ONE], unit="s", style=style))["fieldConfig"]["defaults"]["custom"]

    assert (custom["drawStyle"], custom["showPoints"], custom["fillOpacity"]) == (style, points, fill)


def test_lines_are_dashed_at_thresholds_and_axes_begin_where_it_is_said() -> None:
    found = json_of(panels.timeseries("T", ABOUT, [ONE], unit="s", steps=BELOW, minimum=None, maximum=1.0, log=True))
    defaults = found["fieldConfig"]["defaults"]

    assert defaults["custom"]["thresholdsStyle"] == {"mode": "dashed"}
    assert defaults["custom"]["scaleDistribution"] == {"type": "log", "log": 10}
    assert defaults["max"] == 1.0
    assert "min" not in defaults


def test_a_table_joins_its_queries_by_labels_and_renames_and_orders_columns() -> None:
    columns = [Column("instance", "Node"), Column("B", "Age", "s"), Column("A", "Up", texts={"1": "yes"}, link=LINK)]
    found = json_of(panels.table("T", ABOUT, [Query("up"), Query("age")], columns, sort="Age"))
    only, merge, organize = found["transformations"]

    assert merge["id"] == "merge"
    assert only["options"]["include"]["pattern"] == "^(instance|Value #B|Value #A)$"
    assert organize["options"]["renameByName"] == {"instance": "Node", "Value #B": "Age", "Value #A": "Up"}
    assert sorted(organize["options"]["indexByName"], key=organize["options"]["indexByName"].get) == [
        "instance",
        "Value #B",
        "Value #A",
    ]
    assert found["options"]["sortBy"] == [{"displayName": "Age", "desc": True}]
    assert {one["format"] for one in found["targets"]} == {"table"}
    of_up = {one["id"]: one["value"] for one in found["fieldConfig"]["overrides"][2]["properties"]}
    assert of_up["links"] == [{"title": "There", "url": "https://example.com", "targetBlank": False}]
    assert of_up["mappings"][0]["options"]["1"]["text"] == "yes"


def test_a_table_of_one_query_has_nothing_to_join() -> None:
    found = json_of(panels.table("T", ABOUT, [Query("up")], [Column("instance", "Node"), Column("A", "Up")]))

    assert [one["id"] for one in found["transformations"]] == ["filterFieldsByName", "organize"]
    assert found["transformations"][1]["options"]["renameByName"] == {"instance": "Node", "Value": "Up"}


def test_a_heatmap_has_series_or_buckets_as_rows() -> None:
    series = json_of(panels.heatmap("T", ABOUT, ONE, unit="percentunit", minimum=0.0, maximum=2.0))
    buckets = json_of(panels.heatmap("T", ABOUT, Query("x", "{{le}}"), unit="s", is_histogram=True))

    assert (series["targets"][0]["format"], buckets["targets"][0]["format"]) == ("time_series", "heatmap")
    assert (series["options"]["color"]["min"], series["options"]["color"]["max"]) == (0.0, 2.0)
    assert series["options"]["cellValues"]["unit"] == "percentunit"
    assert (buckets["options"]["yAxis"]["unit"], buckets["options"]["cellValues"]["unit"]) == ("s", "short")
    assert not series["options"]["calculate"]


def test_a_band_has_the_text_and_colour_of_its_state() -> None:
    found = json_of(panels.timeline("T", ABOUT, [ONE], {"0": ("down", palette.BAD), "1": ("up", palette.OK)}))
    (mapping,) = found["fieldConfig"]["defaults"]["mappings"]

    assert {value: (one["text"], one["color"]) for value, one in mapping["options"].items()} == {
        "0": ("down", palette.BAD),
        "1": ("up", palette.OK),
    }


def test_words_and_headings_ask_nothing() -> None:
    words, heading = panels.text("### Is it?"), panels.row("Below")
    text, title = json_of(words), json_of(heading)

    assert title["title"] == "Below"
    assert text["options"] == {"mode": "markdown", "content": "### Is it?"}
    assert not {"targets", "datasource", "fieldConfig"} & (text.keys() | title.keys())


def test_bars_of_what_happens_now_and_then_sum_up_to_all_that_happened(tmp_path: Path) -> None:
    failures = panels.happenings("T", ABOUT, [Query('sum by (host) (rate(f_total{host="a"}[$__rate_interval]))')])
    made = json_of(failures)
    expr = filled(made["targets"][0]["expr"], {"__rate_interval": "75s"})  # Grafana's, of a step of a minute and scrapes at 15 s

    planted = {'f_total{host="a"}': "3x19 7x30 8x60"}
    seen = {5: 4.0, 13: 1.0}  # by the minute of the bar; scrapes are some seconds before its end, as they are
    asked = [(expr, f"{60 * minute + 7}s", {'{host="a"}': seen.get(minute, 0.0)}) for minute in range(2, 20)]
    assert wrong(tmp_path, planted, asked, interval="15s") == ""
    assert made["interval"] == panels.LEAST_STEP
    assert "Each bar is what happened in its step" in made["description"]


@pytest.mark.parametrize("board", boards(POLICY), ids=lambda board: board.uid)
def test_no_board_draws_increases_over_windows_that_overlap_as_counts(board: Board) -> None:
    for panel in to_json(board)["panels"]:
        if (
            panel["type"] == "heatmap"
            or panel.get("fieldConfig", {}).get("defaults", {}).get("custom", {}).get("drawStyle") == "bars"
        ):
            assert not [one["expr"] for one in panel["targets"] if "increase(" in one["expr"]]
