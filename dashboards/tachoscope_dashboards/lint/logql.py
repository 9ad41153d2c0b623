"""The form of LogQL, as far as it can be told without Loki: brackets that close, a selector of streams, ranges.

https://grafana.com/docs/loki/latest/query/
"""

from __future__ import annotations

import re

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`')
_STREAMS = re.compile(r'\{\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*""')
_RANGE = re.compile(r"\[([^\]]*)\]")
_PAIRS = {")": "(", "]": "[", "}": "{"}


def fault(query: str) -> str:
    """Return what is wrong with the form of a query; nothing if that may be right."""
    bare = _bare(query)
    if '"' in bare.replace('""', "") or "`" in bare:
        return "a text does not end"
    open_: list[str] = []
    for sign in bare:
        if sign in _PAIRS.values():
            open_.append(sign)
        elif sign in _PAIRS and (not open_ or open_.pop() != _PAIRS[sign]):
            return f"{sign!r} closes nothing"
    if open_:
        return f"{open_[-1]!r} is not closed"
    return "" if _STREAMS.search(bare) else 'it has no selector of streams, such as {app="x"}'


def fixed_ranges(query: str) -> list[str]:
    """Return the ranges of a query that do not follow the board's time range."""
    return [found for found in _RANGE.findall(_bare(query)) if found.strip() not in {"$__auto", "${__auto}"}]


def _bare(query: str) -> str:
    """Return a query with its texts emptied."""
    return _TEXT.sub('""', query)
