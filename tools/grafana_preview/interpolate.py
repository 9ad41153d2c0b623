"""Fills in what boards leave open: variables, the time range and intervals in queries; values of a row in links.

https://grafana.com/docs/grafana/latest/dashboards/variables/variable-syntax/ An unknown variable stays as it is written.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grafana_preview.times import Span, words

ALL = "$__all"
_VARIABLE = re.compile(r"\$\{(?P<long>\w+)(?:\.(?P<path>[^:}]+))?(?::(?P<format>\w+))?\}|\$(?P<short>\w+)")
_SPECIAL = re.compile(r"[\\^$*{}\[\]+?.()|]")


@dataclass(frozen=True, slots=True)
class Choice:
    """What is chosen of a variable.

    Attributes:
        values: those that are chosen; `ALL` alone for all. several: whether it takes several. may_be_all: whether it takes all.
        all_value: what stands for all; empty for each of the options. options: what may be chosen. title: for people.
    """

    name: str
    values: tuple[str, ...]
    several: bool = False
    may_be_all: bool = False
    all_value: str = ""
    options: tuple[str, ...] = ()
    title: str = ""

    @property
    def is_all(self) -> bool:
        return self.values == (ALL,)


def query(expr: str, choices: Sequence[Choice], span: Span) -> str:
    """Return an expression or selector as Prometheus reads it."""
    fixed = {
        "__interval": words(span.step),
        "__interval_ms": f"{span.step * 1000:.0f}",
        "__rate_interval": words(span.rate_seconds),
        "__rate_interval_ms": f"{span.rate_seconds * 1000:.0f}",
        "__range": words(round(span.seconds)),
        "__range_s": f"{span.seconds:.0f}",
        "__range_ms": f"{span.seconds * 1000:.0f}",
    }
    values = fixed | {choice.name: _in_query(choice) for choice in choices}
    return _filled(expr, lambda found: values.get(_name(found)))


def link(url: str, choices: Sequence[Choice], span: Span, row: Mapping[str, str] | None = None) -> str:
    """Return where a link leads; empty if it would lead to anything but a page. row: by Grafana's names, as `__value.raw`."""
    times = {"__from": f"{span.start * 1000:.0f}", "__to": f"{span.end * 1000:.0f}"}
    # There is one data source here: what a board has a variable for.
    fixed = times | {"__url_time_range": f"from={times['__from']}&to={times['__to']}", "datasource": ""}
    known = {choice.name: choice for choice in choices}

    def value(found: re.Match[str]) -> str | None:
        name, path = _name(found), found["path"]
        if path:
            # Of a column that a table does not have Grafana makes nothing.
            missing = "" if row is not None and name == "__data" else None
            return _quoted((row or {}).get(f"{name}.{_plain(path)}", missing))
        if name in known:
            return _in_link(known[name], found["format"] or "")
        return fixed.get(name)

    return safe(_filled(url, value))


def plain(text: str, choices: Sequence[Choice]) -> str:
    """Return words for people, such as a title, with variables filled in."""
    known = {choice.name: choice for choice in choices}
    return _filled(text, lambda found: " + ".join(_shown(known[_name(found)])) if _name(found) in known else None)


def _shown(choice: Choice) -> Sequence[str]:
    return ["All"] if choice.is_all else choice.values


def safe(url: str) -> str:
    """Return an address that leads to a page, here or elsewhere; else nothing."""
    return url if re.match(r"https?://|/(?![/\\])", url) else ""


def _filled(text: str, value: Callable[[re.Match[str]], str | None]) -> str:
    def one(found: re.Match[str]) -> str:
        filled = value(found)
        return found[0] if filled is None else filled

    return _VARIABLE.sub(one, text)


def _name(found: re.Match[str]) -> str:
    return str(found["long"] or found["short"])


def _in_query(choice: Choice) -> str:
    """Return what stands in a quoted matcher: a pattern for any of the values, or, of a variable that takes one, the value."""
    if choice.is_all:
        return choice.all_value or _any_of(choice.options)
    if not choice.several:
        return _in_quotes(choice.values[0]) if choice.values else ""
    return _any_of(choice.values)


def _any_of(values: Sequence[str]) -> str:
    patterns = [_in_quotes(_SPECIAL.sub(r"\\\g<0>", value)) for value in values]
    return patterns[0] if len(patterns) == 1 else f"({'|'.join(patterns)})"


def _in_quotes(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _in_link(choice: Choice, style: str) -> str:
    values = ["All"] if choice.is_all else list(choice.values)
    if style == "queryparam":
        return "&".join(f"var-{choice.name}={_quoted(value)}" for value in values)
    if choice.is_all and style != "text":
        values = [choice.all_value] if choice.all_value else list(choice.options)
    joined = values[0] if len(values) == 1 else f"{{{','.join(values)}}}" if values else ""
    return str(_quoted(joined))


def _quoted(text: str | None) -> str | None:
    return None if text is None else urllib.parse.quote(text, safe="")


def _plain(path: str) -> str:
    """Return `fields.Name` also of `fields["Name"]`."""
    return re.sub(r'\[\\?["\']?(.*?)\\?["\']?\]', r".\1", path)
