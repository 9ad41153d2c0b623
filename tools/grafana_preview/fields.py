"""How a panel shows the values of one field: its unit, colours, words for values, and what stands where there is none.

The defaults of the panel hold, and for fields with a certain name its overrides too, as Grafana has them:
https://grafana.com/docs/grafana/latest/panels-visualizations/configure-overrides/
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grafana_preview import units
from tachoscope_core.report import palette

Json = Mapping[str, Any]
_SHADES = ((1.0, 0), (0.5, 255), (0.55, 0))
"""How much of a colour of the palette is kept, and of which grey the rest is, for the first series, the next, and the next."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a value means: `text` stands for it; color: empty for none."""

    text: str
    color: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """A field's appearance.

    Attributes:
        steps: from a value on, a colour; the first without a value. meanings: by the text of a value.
        fixed_color: of a series; empty for none. by_steps: whether its colour follows the value. links: with `title` and `url`.
    """

    unit: str = "none"
    decimals: int | None = None
    no_value: str = ""
    minimum: float | None = None
    maximum: float | None = None
    steps: tuple[tuple[float, str], ...] = ()
    meanings: Mapping[str, Meaning] = field(default_factory=dict)
    fixed_color: str = ""
    by_steps: bool = False
    links: tuple[Json, ...] = ()
    cell: str = "auto"

    def text(self, value: float | None) -> str:
        """Return what stands for a value."""
        if value is None:
            return self.no_value
        meaning = self.meaning(value)
        return meaning.text if meaning and meaning.text else units.text(value, self.unit, self.decimals)

    def meaning(self, value: float) -> Meaning | None:
        """Return what a value means, if that is said."""
        return self.meanings.get(f"{value:.0f}" if math.isfinite(value) and value == int(value) else repr(value))

    def color(self, value: float | None) -> str:
        """Return the colour of a value by its meaning, else the fixed one, else by the steps; empty for none."""
        meaning = None if value is None else self.meaning(value)
        if meaning and meaning.color:
            return meaning.color
        if self.fixed_color:
            return self.fixed_color
        if not self.by_steps or value is None:
            return ""
        reached = [color for at, color in self.steps if value >= at]
        return reached[-1] if reached else ""


def of(panel: Json, name: str) -> Field:
    """Return how a panel shows a field with a name."""
    config = panel.get("fieldConfig", {})
    merged: dict[str, Any] = dict(config.get("defaults", {}))
    custom = dict(merged.get("custom", {}))
    for override in config.get("overrides", []):
        if override["matcher"] == {"id": "byName", "options": name}:
            for one in override["properties"]:
                (custom if one["id"].startswith("custom.") else merged)[one["id"].removeprefix("custom.")] = one["value"]
    color = merged.get("color", {})
    return Field(
        unit=merged.get("unit", "none"),
        decimals=merged.get("decimals"),
        no_value=merged.get("noValue", ""),
        minimum=merged.get("min"),
        maximum=merged.get("max"),
        steps=steps_of(merged),
        meanings=_meanings(merged.get("mappings", [])),
        fixed_color=color.get("fixedColor", "") if color.get("mode") == "fixed" else "",
        by_steps=color.get("mode") == "thresholds",
        links=tuple(merged.get("links", ())),
        cell=custom.get("cellOptions", {}).get("type", "auto"),
    )


def steps_of(config: Json) -> tuple[tuple[float, str], ...]:
    """Return from which value on which colour holds; the first from minus infinity."""
    found = config.get("thresholds", {}).get("steps", [])
    return tuple((-math.inf if step["value"] is None else float(step["value"]), str(step["color"])) for step in found)


def series_color(known: Field, number: int) -> str:
    """Return the colour of the series with a number: its own, else one of the palette in turn, then these lighter, then darker."""
    turn, place = divmod(number, len(palette.SERIES))
    part, other = _SHADES[turn % len(_SHADES)]
    parts = (int(palette.SERIES[place][at : at + 2], 16) for at in (1, 3, 5))
    return known.fixed_color or "#" + "".join(f"{round(part * one + (1 - part) * other):02X}" for one in parts)


def unknown(panel: Json) -> list[str]:
    """Return what a panel asks of fields that the preview does not do, for people to see."""
    config = panel.get("fieldConfig", {})
    matchers = {one["matcher"]["id"] for one in config.get("overrides", [])} - {"byName"}
    mappings = {one["type"] for one in config.get("defaults", {}).get("mappings", [])} - {"value"}
    return [f"override {name}" for name in sorted(matchers)] + [f"mapping {name}" for name in sorted(mappings)]


def _meanings(mappings: Sequence[Json]) -> dict[str, Meaning]:
    found = {}
    for mapping in mappings:
        if mapping["type"] == "value":
            for value, result in mapping["options"].items():
                found[str(value)] = Meaning(str(result.get("text", "")), str(result.get("color", "")))
    return found
