"""A board lays its panels out itself: from left to right, a new line where one does not fit, nothing on another."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as some

from board_making import ABOUT, board, made
from tachoscope_dashboards.parts.board import Board
from tachoscope_dashboards.parts.grafana_json import to_json
from tachoscope_dashboards.parts.panels import PlacedPanel, Query, row, stat

WIDTHS = some.lists(some.one_of(some.none(), some.tuples(some.integers(1, 24), some.integers(1, 12))), max_size=30)


def placed(sizes: list[tuple[int, int] | None]) -> list[dict[str, int]]:
    """Return where panels of these sizes stand, without the head; None is a heading."""
    panels: list[PlacedPanel] = [
        row("r") if size is None else stat("s", ABOUT, Query("up"), unit="s", width=size[0], height=size[1]) for size in sizes
    ]
    return [one["gridPos"] for one in to_json(Board("x", "X", "Is it?", "", (), panels))["panels"]][1:]


@given(WIDTHS)
def test_no_panel_leaves_the_grid_or_lies_on_another_and_the_order_is_that_of_reading(
    sizes: list[tuple[int, int] | None],
) -> None:
    found = placed(sizes)

    assert all(one["x"] >= 0 and one["x"] + one["w"] <= 24 and one["y"] >= 3 for one in found)
    assert [(one["y"], one["x"]) for one in found] == sorted((one["y"], one["x"]) for one in found)
    for a, b in itertools.combinations(found, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"]


def test_a_line_is_filled_before_the_next_begins_and_a_heading_has_its_own() -> None:
    found = placed([(12, 8), (12, 4), (4, 4), None, (24, 9)])

    assert [(one["x"], one["y"]) for one in found] == [(0, 3), (12, 3), (0, 11), (0, 15), (0, 16)]


def test_a_board_is_headed_by_its_question_and_panels_are_numbered() -> None:
    raw = made()

    assert raw["panels"][0]["options"]["content"] == "### Is all of it there?\nLook from the top."
    assert raw["description"] == "Is all of it there?"
    assert [one["id"] for one in raw["panels"]] == [1, 2, 3, 4, 5]


def test_the_same_board_gives_the_same_bytes_each_time() -> None:
    one = board()

    assert json.dumps(to_json(one)) == json.dumps(to_json(one)) == json.dumps(made())
