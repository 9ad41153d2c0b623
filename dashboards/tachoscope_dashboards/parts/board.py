"""A board: one question, its variables, and rows of panels that lay themselves out on Grafana's 24 columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tachoscope_dashboards.parts.panels import PlacedPanel
from tachoscope_dashboards.parts.variables import Variable


@dataclass(frozen=True, slots=True)
class BoardAnnotation:
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
        panels: laid out from left to right, a new line where one does not fit; a row begins again.
        events: besides alerts, which all boards have. alerts: matchers of those that belong here, such as `area="training"`.
        refresh, since: how often it renews itself, and how far back it looks at first.
    """

    uid: str
    title: str
    question: str
    hint: str
    variables: Sequence[Variable]
    panels: Sequence[PlacedPanel]
    events: Sequence[BoardAnnotation] = ()
    alerts: str = ""
    refresh: str = "1m"
    since: str = "now-6h"
