"""Boards are what Grafana has types for, in its former schema and in V2: nothing is lost on the way through them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from board_making import POLICY, Json, made, panel, variable
from round_trip import losses, losses_of_v2
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.parts.board import Board
from tachoscope_dashboards.parts.grafana_json import to_json
from tachoscope_dashboards.parts.grafana_v2 import to_resource


@pytest.mark.parametrize("board", boards(POLICY), ids=lambda board: board.uid)
def test_nothing_of_a_board_of_the_suite_is_lost(board: Board) -> None:
    assert losses(to_json(board)) == []
    assert losses_of_v2(to_resource(to_json(board))) == []


def test_nothing_of_any_kind_of_panel_is_lost() -> None:
    assert losses(made()) == []
    assert losses_of_v2(to_resource(made())) == []


def test_every_panel_of_a_board_lies_in_v2_where_it_lies_otherwise() -> None:
    board = made()
    rows = to_resource(board)["spec"]["layout"]["spec"]["rows"]

    assert [row["spec"]["title"] for row in rows if row["spec"]["title"]] == [
        one["title"] for one in board["panels"] if one["type"] == "row"
    ]
    found, top = {}, 0
    for row in rows:
        top += not row["spec"].get("hideHeader")
        items = [item["spec"] for item in row["spec"]["layout"]["spec"]["items"]]
        found |= {one["element"]["name"]: (one["x"], one["y"] + top, one["width"], one["height"]) for one in items}
        top += max((one["y"] + one["height"] for one in items), default=0)
    places = {f"panel-{one['id']}": one["gridPos"] for one in board["panels"] if one["type"] != "row"}
    assert found == {name: (at["x"], at["y"], at["w"], at["h"]) for name, at in places.items()}


def option(raw: Json) -> None:
    panel(raw, "Nodes")["options"]["colourMode"] = "value"


def custom(raw: Json) -> None:
    panel(raw, "Where time goes")["fieldConfig"]["defaults"]["custom"]["drawstyle"] = "line"


def of_fields(raw: Json) -> None:
    panel(raw, "Nodes")["fieldConfig"]["defaults"]["nullValue"] = "x"


def of_a_panel(raw: Json) -> None:
    panel(raw, "Nodes")["span"] = 4


def of_a_target(raw: Json) -> None:
    panel(raw, "Nodes")["targets"][0]["legend"] = "x"


def of_a_variable(raw: Json) -> None:
    variable(raw, "node")["useTags"] = False


def of_the_board(raw: Json) -> None:
    raw["hideControls"] = False


@pytest.mark.parametrize("misspell", [option, custom, of_fields, of_a_panel, of_a_target, of_a_variable, of_the_board])
def test_a_key_that_grafana_does_not_know_is_found(misspell: Callable[[Json], None]) -> None:
    raw = made()
    misspell(raw)

    assert len(losses(raw)) == 1
