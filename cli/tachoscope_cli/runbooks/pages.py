"""The page of a runbook by its name, and its queries and commands with the labels of an alert filled in."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.metric import NAMESPACE
from tachoscope_show.text.runbook_pages import names, text_of

_PLACEHOLDER = re.compile(r"\$\{(\w+)(%%:\*)?\}")
"""Also as a shell writes what stands before the first colon: the node of an instance."""
_QUERIES = re.compile(r"(^```promql\n.*?^```$)", re.DOTALL | re.MULTILINE)
EMPTY = dict.fromkeys(("cluster", NAMESPACE), "")
"""An alert lacks them where there is one cluster, or no namespace: its series have none either, and in a query "" finds these."""
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+=,%][A-Za-z0-9_.:/@+=,%-]*")
"""Values that a shell takes as they are, and no command for an option."""


def page_of(name: str) -> str:
    """Return a page by its name, with or without `.md`.

    Raises:
        TachoscopeError: there is none of that name.
    """
    known = names()
    wanted = name.removesuffix(".md")
    if wanted in known:
        return text_of(f"runbooks/{wanted}.md")
    near = _near(wanted, known)
    meant = f"is it {' or '.join(near)}? " if near else ""
    raise TachoscopeError(f"unknown runbook {name!r}", fix=f"{meant}All of them: tachoscope runbook")


def filled(page: str, values: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return a page with `${label}` replaced where the label is known, and the placeholders that are left, in their order.

    In commands a value that is not plain is left to the shell's variable, whose value
    runs nothing, whatever stands in it.
    """
    values = EMPTY | dict(values)

    def in_command(found: re.Match[str]) -> str:
        return _of(found, values) if found[1] in values and _PLAIN.fullmatch(values[found[1]]) else found[0]

    parts = _QUERIES.split(page)  # every second one is a block of queries
    text = "".join(in_query(part, values) if place % 2 else _PLACEHOLDER.sub(in_command, part) for place, part in enumerate(parts))
    return text, labels_needed(text)


def in_query(expression: str, values: Mapping[str, str]) -> str:
    """Return a query with `${label}` replaced where the label is known; a value is escaped as PromQL has it."""
    values = EMPTY | dict(values)

    def escaped(found: re.Match[str]) -> str:
        return _of(found, values).replace("\\", r"\\").replace('"', r"\"") if found[1] in values else found[0]

    return _PLACEHOLDER.sub(escaped, expression)


def _of(found: re.Match[str], values: Mapping[str, str]) -> str:
    value = values[found[1]]
    return value.partition(":")[0] if found[2] else value


def labels_needed(page: str) -> list[str]:
    """Return the labels that a page has placeholders of, in their order."""
    return list(dict.fromkeys(label for label, _ in _PLACEHOLDER.findall(page)))


def _near(wanted: str, known: Sequence[str]) -> list[str]:
    """Return the names that may be meant, the likeliest first. One is typed from a telephone: never mind capitals."""
    small = {one.lower(): one for one in known}
    alike = difflib.get_close_matches(wanted.lower(), small, n=5)
    holding = [one for one in small if len(wanted) > 2 and wanted.lower() in one]
    return [small[one] for one in list(dict.fromkeys([*alike, *holding]))[:5]]
