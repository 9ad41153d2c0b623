"""A board: one question, its variables, and rows of panels that lay themselves out on Grafana's 24 columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafanalib import core as grafana

from tachoscope_dashboards.parts import panels
from tachoscope_dashboards.parts.finalize import finalize
from tachoscope_dashboards.parts.panels import Placed
from tachoscope_dashboards.parts.variables import Variable


@dataclass(frozen=True, slots=True)
class Event:
    """Marks on all panels of a board over time: where `expr` has a value. title: of a mark, with labels as `{{alertname}}`."""

    name: str
    expr: str
    title: str
    color: str


@dataclass(frozen=True, slots=True)
class Board:
    """One board.

    Attributes:
        uid: fixed, alerts link to it by it; `board_uid` of its name. title: short. question: what it answers, with a question mark.
        hint: how to read it, and where to go from here. variables: in the order in which they are chosen.
        panels: laid out from left to right, a new line where one does not fit; a row begins anew.
        events: besides alerts, which all boards have. alerts: matchers of those that belong here, such as `area="training"`.
        refresh, since: how often it renews itself, and how far back it looks at first.
    """

    uid: str
    title: str
    question: str
    hint: str
    variables: Sequence[Variable]
    panels: Sequence[Placed]
    events: Sequence[Event] = ()
    alerts: str = ""
    refresh: str = "1m"
    since: str = "now-6h"


def to_json(board: Board) -> dict[str, Any]:
    """Return the board as Grafana 11 to 13 load it; the same each time."""
    head = panels.text(f"### {board.question}\n{board.hint}", height=3)
    dashboard = grafana.Dashboard(
        title=f"tachoscope / {board.title}",
        uid=board.uid,
        description=board.question,
        tags=["tachoscope"],
        refresh=board.refresh,
        time=grafana.Time(board.since, "now"),
        timezone="browser",
        editable=False,
        panels=_placed([head, *board.panels]),
    )
    return finalize(dashboard, board)


def _placed(wanted: Sequence[Placed]) -> list[grafana.Panel]:
    found, left, top, tallest = [], 0, 0, 0
    for number, one in enumerate(wanted):
        is_row = isinstance(one.panel, grafana.RowPanel)
        if is_row or left + one.width > 24:
            left, top, tallest = 0, top + tallest, 0
        one.panel.gridPos = grafana.GridPos(h=one.height, w=one.width, x=left, y=top)
        one.panel.id = number + 1
        found.append(one.panel)
        left, tallest = left + one.width, max(tallest, one.height)
    return found
