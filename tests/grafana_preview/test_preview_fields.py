"""How a panel's settings make of a value a text and a colour."""

from __future__ import annotations

from typing import Any

from grafana_preview import fields
from tachoscope_core.report import palette
from tachoscope_dashboards.parts.board import Board
from tachoscope_dashboards.parts.grafana_json import to_json
from tachoscope_dashboards.parts.panels import ColorStep, Column, PanelText, PlacedPanel, Query, stat, table, timeseries

ABOUT = PanelText("It.", "well", "fix it", "no traffic")


def panel(placed: PlacedPanel) -> dict[str, Any]:
    """Return the panel's JSON as it stands in a board."""
    board = Board("x", "X", "Is it?", "", (), [placed])
    found: dict[str, Any] = to_json(board)["panels"][1]
    return found


def test_steps_colour_a_value_by_the_last_one_that_it_reaches() -> None:
    steps = [ColorStep(float("-inf"), palette.BAD), ColorStep(0.9, palette.WARN), ColorStep(0.99, palette.OK)]
    known = fields.of(panel(stat("S", ABOUT, Query("x"), unit="percentunit", steps=steps)), "x")

    assert [known.color(value) for value in (-1.0, 0.9, 0.95, 0.99)] == [palette.BAD, palette.WARN, palette.WARN, palette.OK]
    assert known.text(0.955) == "95.5%"
    assert known.text(None) == "no traffic"


def test_an_override_holds_for_the_field_of_its_name_only() -> None:
    drawn = panel(timeseries("T", ABOUT, [Query("x")], unit="s", colors={"a": "#111111"}))

    assert fields.series_color(fields.of(drawn, "a"), 3) == "#111111"
    assert fields.series_color(fields.of(drawn, "b"), 3) == palette.SERIES[3]
    assert fields.of(drawn, "b").unit == "s"


def test_two_dozen_series_have_two_dozen_colours() -> None:
    colors = [fields.series_color(fields.Field(), number) for number in range(24)]

    assert tuple(colors[: len(palette.SERIES)]) == palette.SERIES
    assert len(set(colors)) == 24


def test_a_columns_unit_texts_and_colours_are_its_own() -> None:
    columns = [Column("a", "A"), Column("B", "Load", unit="percentunit", steps=(ColorStep(0.5, palette.BAD),), texts={"0": "idle"})]
    drawn = panel(table("T", ABOUT, [Query("x"), Query("y")], columns))

    load, plain = fields.of(drawn, "Load"), fields.of(drawn, "A")
    assert (load.text(0.75), load.text(0.0), load.color(0.75), load.cell) == ("75%", "idle", palette.BAD, "color-text")
    assert (plain.text(0.75), plain.cell) == ("0.750", "auto")


def test_what_the_preview_does_not_know_is_named() -> None:
    drawn = panel(timeseries("T", ABOUT, [Query("x")], unit="s"))
    assert fields.unknown(drawn) == []
    drawn["fieldConfig"]["overrides"].append({"matcher": {"id": "byRegexp", "options": "x"}, "properties": []})
    drawn["fieldConfig"]["defaults"]["mappings"].append({"type": "range", "options": {}})
    assert fields.unknown(drawn) == ["override byRegexp", "mapping range"]
