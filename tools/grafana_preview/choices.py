"""What the variables of a board may be, and are: options from Prometheus, the choice from the page's address."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from grafana_preview import interpolate as filling
from grafana_preview.interpolate import ALL, Choice
from grafana_preview.times import Span
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net import prometheus as prometheus_query
from tachoscope_dashboards.lint.expressions import call

Json = Mapping[str, Any]
_DIGITS = re.compile(r"(\d+)")


def chosen(board: Json, asked: Mapping[str, Sequence[str]]) -> list[Choice]:
    """Return what a page's address chooses (`var-NAME`), without asking Prometheus: all where it says nothing, if that may be."""
    found = []
    for one in _variables(board):
        name, may_be_all = str(one["name"]), bool(one.get("includeAll"))
        all_value = str(one.get("allValue") or "")
        several, values = bool(one.get("multi")), tuple(asked.get(f"var-{name}", ()))
        if not values or values[0] in {ALL, "All"} or values[0] == all_value != "":
            values = (ALL,) if may_be_all else ()
        title = str(one.get("label") or name)
        found.append(Choice(name, values if several else values[:1], several, may_be_all, all_value, (), title))
    return found


def choices(board: Json, asked: Mapping[str, Sequence[str]], url: str, span: Span) -> list[Choice]:
    """Return the variables with their options; one that does not take all has the first if nothing is chosen.

    Raises:
        TachoscopeError: Prometheus does not answer, or a variable asks for something other than `label_values`.
    """
    found: list[Choice] = []
    for one, choice in zip(_variables(board), chosen(board, asked), strict=True):
        options = _options(one, url, found, span)
        values = choice.values or options[:1]
        found.append(replace(choice, values=values, options=options))
    return found


def _variables(board: Json) -> list[Json]:
    return [one for one in board.get("templating", {}).get("list", []) if one["type"] == "query"]


def _options(one: Json, url: str, before: Sequence[Choice], span: Span) -> tuple[str, ...]:
    asked = one["query"]["query"] if isinstance(one["query"], Mapping) else one["query"]
    function, arguments = call(asked)
    if function != "label_values":
        raise TachoscopeError(f"variable {one['name']}: the preview knows label_values(...) only, not {asked[:80]}")
    selector, _, label = arguments.rpartition(",")
    matching = filling.query(selector.strip(), before, span) or '{__name__!=""}'
    values = prometheus_query.label_values(url, label.strip(), matching, start=span.start, end=span.end)
    return tuple(sorted(values, key=_natural))


def _natural(value: str) -> list[tuple[int, str]]:
    """Return by what `rank 9` comes before `rank 10`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(value) if part]
