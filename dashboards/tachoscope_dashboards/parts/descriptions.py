"""What boards say of a panel: its queries, thresholds, words and links. `panels` makes panels of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]
Unit = Literal[
    "s",
    "percentunit",
    "bytes",
    "Bps",
    "ops",
    "cps",
    "pps",
    "reqps",
    "watt",
    "watth",
    "hertz",
    "celsius",
    "short",
    "none",
    "dateTimeFromNow",
]
"""Grafana's names of units; there are more, take one that its linter knows."""


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel.

    Attributes:
        expr: PromQL with the board's variables. legend: of its series, such as `{{rank}}`.
        instant: asked at the end of the time range only. name: refId; A, B, C by default.
    """

    expr: str
    legend: str = ""
    instant: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class ColorStep:
    """From `at` on a value has this colour."""

    at: float
    color: str


@dataclass(frozen=True, slots=True)
class PanelText:
    """What people read of a panel.

    Attributes:
        shows: what it is. healthy: what it looks like when all is well. otherwise: what to do when it does not.
        empty: why there may be nothing, a few words that stand in the panel: "no traffic", "no GPU on this node".
    """

    shows: str
    healthy: str
    otherwise: str
    empty: str

    def text(self) -> str:
        return f"{self.shows}\n\n**Healthy:** {self.healthy}\n\n**Otherwise:** {self.otherwise}"


@dataclass(frozen=True, slots=True)
class Link:
    """Where a panel leads. Grafana fills in variables such as `${training_job}` and `${__from}`."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: a label of the series, or a query by its name (`A`).

    Attributes:
        source: the label, or the query's name. title: of the column. unit: of a value. steps: its colours.
        link: of each cell; `${__data.fields.<title>}` is the value of another column of the row, `${__value.raw}` its own.
        texts: what to write for values: {"1": "up"}.
    """

    source: str
    title: str
    unit: Unit = "none"
    steps: tuple[ColorStep, ...] = ()
    link: Link | None = None
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel in Grafana's terms, before a schema is chosen.

    Attributes:
        kind: Grafana's name of it, such as `timeseries`, `text` or `row`. format: in which the data source answers its queries.
        settings: what Grafana keeps of a panel of this kind: `fieldConfig`, `options`, `links`, `transformations`, `interval`.
    """

    kind: str
    title: str = ""
    description: str = ""
    queries: tuple[Query, ...] = ()
    format: str = "time_series"
    settings: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlacedPanel:
    """A panel with how many of the 24 columns of a row it takes, and how high it is."""

    panel: Panel
    width: int
    height: int
