"""A dashboard of Grafana's, read for checks: only what they look at, with defaults for what may be missing.

Files may be of users: as Grafana exports them, as its API returns them (`dashboard`), or as a resource of version 1 (`spec`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tachoscope_core.errors import TachoscopeError

Json = dict[str, Any]
WITHOUT_QUERIES = frozenset({"row", "text", "dashlist", "news", "alertlist", "annolist", "welcome", "gettingstarted"})
"""Types of panels that ask no data source for series."""


class BoardPart(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a dashboard; what is not named in it is not looked at."""


class DataSourceRef(BoardPart, frozen=True):
    """A reference to a data source; older dashboards write its name alone."""

    type: str = ""
    uid: str = ""


class Target(BoardPart, frozen=True):
    """A query of a panel. `panel_id`: the panel whose result it takes instead of asking."""

    expr: str = ""
    ref_id: str = ""
    legend_format: str = ""
    instant: bool = False
    range: bool = False
    hide: bool = False
    panel_id: int = 0
    datasource: DataSourceRef | str = ""

    @property
    def is_instant(self) -> bool:
        """Whether it is asked for one moment only."""
        return self.instant and not self.range


class GridPosition(BoardPart, frozen=True):
    """Where a panel stands, of 24 columns."""

    x: int = 0
    y: int = 0
    w: int = 0
    h: int = 0


class Link(BoardPart, frozen=True):
    """A link of a panel, a field or a board."""

    title: str = ""
    url: str = ""


class Property(BoardPart, frozen=True):
    """A setting of some fields."""

    id: str = ""
    value: Any = None


class Override(BoardPart, frozen=True):
    """Settings of the fields that `matcher` chooses."""

    matcher: Json = {}
    properties: list[Property] = []


class FieldDefaults(BoardPart, frozen=True):
    """What holds for each field of a panel without an override."""

    unit: str = ""
    no_value: str = ""
    mappings: list[Json] = []
    links: list[Link] = []


class FieldConfig(BoardPart, frozen=True):
    """How a panel shows its fields."""

    defaults: FieldDefaults = FieldDefaults()
    overrides: list[Override] = []


class Panel(BoardPart, frozen=True):
    """A panel, or a row, which holds panels while it is folded."""

    id: int = 0
    type: str = ""
    title: str = ""
    description: str = ""
    grid_pos: GridPosition = GridPosition()
    datasource: DataSourceRef | str = ""
    targets: list[Target] = []
    field_config: FieldConfig = FieldConfig()
    options: Json = {}
    links: list[Link] = []
    transformations: list[Json] = []
    panels: list[Panel] = []

    @property
    def name(self) -> str:
        """What people know it by."""
        return self.title or f"panel {self.id} ({self.type})"

    @property
    def has_queries(self) -> bool:
        """Whether it shows what a data source answers."""
        return self.type not in WITHOUT_QUERIES

    def all_links(self) -> Iterator[Link]:
        """Yield its links, and those of its fields."""
        yield from self.links
        yield from self.field_config.defaults.links
        for override in self.field_config.overrides:
            for one in override.properties:
                if one.id == "links":
                    yield from msgspec.convert(one.value, list[Link])


class Variable(BoardPart, frozen=True):
    """What the rules read of a variable."""

    name: str = ""
    type: str = ""
    label: str = ""
    query: Json | str = ""
    datasource: DataSourceRef | str = ""
    refresh: int | bool = 0
    multi: bool = False
    include_all: bool = False
    all_value: str = ""

    @property
    def query_text(self) -> str:
        """What it asks, such as `label_values(up, job)`."""
        return str(self.query.get("query", "")) if isinstance(self.query, dict) else self.query


class Annotation(BoardPart, frozen=True):
    """Marks over time."""

    name: str = ""
    expr: str = ""
    title_format: str = ""
    datasource: DataSourceRef | str = ""
    built_in: int = 0


class Annotations(BoardPart, frozen=True):
    """All of a board's."""

    list: tuple[Annotation, ...] = ()


class Variables(BoardPart, frozen=True):
    """All of a board's, in their order."""

    list: tuple[Variable, ...] = ()


class Dashboard(BoardPart, frozen=True):
    """A dashboard. `raw`: all of it that is not null. `place`: its file, or its uid."""

    uid: str = ""
    title: str = ""
    description: str = ""
    editable: bool = True
    schema_version: int = 0
    tags: list[str] = []
    links: list[Link] = []
    panels: list[Panel] = []
    templating: Variables = Variables()
    annotations: Annotations = Annotations()
    raw: Json = {}
    place: str = ""

    def all_panels(self) -> Iterator[Panel]:
        """Yield its panels with those in folded rows."""
        for panel in self.panels:
            yield panel
            yield from panel.panels

    def query_panels(self) -> Iterator[Panel]:
        """Yield the panels that show what a data source answers."""
        return (panel for panel in self.all_panels() if panel.has_queries)

    def variables(self) -> tuple[Variable, ...]:
        """Return its variables, that of the data source among them."""
        return self.templating.list


def dashboard(raw: Json, place: str) -> Dashboard:
    """Return what is read of a dashboard.

    Raises:
        TachoscopeError: it has not the form of one.
    """
    content = _without_nulls(raw)
    try:
        found = msgspec.convert({**content, "raw": {}, "place": place}, Dashboard)
    except msgspec.ValidationError as error:
        raise TachoscopeError(f"{place} is not a Grafana dashboard: {error}", fix="export it again") from None
    return msgspec.structs.replace(found, raw=content)


def files(paths: Iterable[Path]) -> list[Path]:
    """Return files, and of folders the `*.json` in them.

    Raises:
        TachoscopeError: a folder has none.
    """
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise TachoscopeError(f"{path} contains no *.json", fix="name a folder with dashboards in it")
        found += inside
    return found


def read(path: Path) -> Dashboard:
    """Read a dashboard of a file.

    Raises:
        TachoscopeError: there is none, or none that can be used.
    """
    return dashboard(content_of(path), str(path))


def content_of(path: Path) -> Json:
    """Return what a file holds of a dashboard, as it is written.

    Raises:
        TachoscopeError: it cannot be read, or holds none.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise TachoscopeError(f"{path} cannot be read: {error.strerror}", fix="name files of dashboards, *.json") from None
    except ValueError as error:
        raise TachoscopeError(f"{path} is not JSON: {error}", fix="name files of dashboards, *.json") from None
    if isinstance(content, dict) and str(content.get("apiVersion", "")).startswith("dashboard.grafana.app/v2"):
        raise TachoscopeError(f"{path} is a dashboard of schema version 2", fix="export it in the classic model")
    for wrapper in ("dashboard", "spec"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not isinstance(content.get("panels"), list):
        raise TachoscopeError(f"{path} is not a Grafana dashboard: it has no panels", fix="export it again")
    return content


def _without_nulls(value: Any) -> Any:
    """Return a value without what is null in it: Grafana writes null for what is not set."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value if part is not None]
    return value
