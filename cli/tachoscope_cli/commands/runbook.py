"""`tachoscope runbook`: the page of an alert or of a class, with the alert's labels in its queries and commands."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from tachoscope_cli.common.options import notice
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.metric import NAMESPACE
from tachoscope_show.text.runbook_pages import names, text_of

_PLACEHOLDER = re.compile(r"\$\{(\w+)(%%:\*)?\}")
"""Also as a shell writes what stands before the first colon: the node of an instance."""
_QUERIES = re.compile(r"(^```promql\n.*?^```$)", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"^<!--.*-->\n", re.MULTILINE)
"""Where generated parts begin and end is of use to nobody who reads the page."""
_EMPTY = dict.fromkeys(("cluster", NAMESPACE), "")
"""An alert lacks them where there is one cluster, or no namespace: its series have none either, and in a query "" finds these."""
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+=,%][A-Za-z0-9_.:/@+=,%-]*")
"""Values that a shell takes as they are, and no command for an option."""


def runbook(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="An alert, a class of bottleneck, or a procedure. Default: list them.")
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Argument(metavar="LABEL=VALUE...", help="Labels of the alert, to fill in where the page needs them."),
    ] = None,
) -> None:
    """Print the runbook of an alert, with its labels filled in, or of a class of bottleneck."""
    if name is None:
        typer.echo("\n".join(names()))
        return
    page, values = page_of(name), _values(labels or ())
    text, left = filled(page, values)
    typer.echo(_COMMENT.sub("", text), nl=False)
    _tell(values, needed=_needed(page), left=left)


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
    raise TachoscopeError(f"there is no runbook {name!r}", fix=f"{meant}All of them: tachoscope runbook")


def filled(page: str, values: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return a page with `${label}` replaced where the label is known, and the placeholders that are left, in their order.

    In commands a value that is not plain is left to the shell's variable, whose value
    runs nothing, whatever stands in it.
    """
    values = _EMPTY | dict(values)

    def in_command(found: re.Match[str]) -> str:
        return _of(found, values) if found[1] in values and _PLAIN.fullmatch(values[found[1]]) else found[0]

    parts = _QUERIES.split(page)  # every second one is a block of queries
    text = "".join(in_query(part, values) if place % 2 else _PLACEHOLDER.sub(in_command, part) for place, part in enumerate(parts))
    return text, _needed(text)


def in_query(expression: str, values: Mapping[str, str]) -> str:
    """Return a query with `${label}` replaced where the label is known; a value is escaped as PromQL has it."""
    values = _EMPTY | dict(values)

    def escaped(found: re.Match[str]) -> str:
        return _of(found, values).replace("\\", r"\\").replace('"', r"\"") if found[1] in values else found[0]

    return _PLACEHOLDER.sub(escaped, expression)


def _of(found: re.Match[str], values: Mapping[str, str]) -> str:
    value = values[found[1]]
    return value.partition(":")[0] if found[2] else value


def _needed(page: str) -> list[str]:
    return list(dict.fromkeys(label for label, _ in _PLACEHOLDER.findall(page)))


def _near(wanted: str, known: Sequence[str]) -> list[str]:
    """Return the names that may be meant, the likeliest first. One is typed from a telephone: never mind capitals."""
    small = {one.lower(): one for one in known}
    alike = difflib.get_close_matches(wanted.lower(), small, n=5)
    holding = [one for one in small if len(wanted) > 2 and wanted.lower() in one]
    return [small[one] for one in list(dict.fromkeys([*alike, *holding]))[:5]]


def _values(labels: Sequence[str]) -> dict[str, str]:
    values = {}
    for pair in labels:
        label, found, value = pair.partition("=")
        if not found or not label.isidentifier():
            raise TachoscopeError(f"{pair!r} is no label with a value", fix="write label=value, such as instance=node-1:9465")
        if not value.isprintable():
            raise TachoscopeError(
                f"the value of {label} holds a line break or another control character: {value!r}",
                fix="write it as the alert shows it, in one line",
            )
        values[label] = value
    return values


def _tell(values: Mapping[str, str], *, needed: Sequence[str], left: Sequence[str]) -> None:
    """Say what was not done with the labels, below the page, where it is seen."""
    unused = [label for label in values if label not in needed]
    if unused:
        takes = f"it takes {', '.join(needed)}" if needed else "it takes none"
        notice(f"not used by this page: {', '.join(unused)}; {takes}")
    missing = [label for label in left if label not in {**_EMPTY, **values}]
    if missing:
        notice(f"not filled in: {', '.join(missing)}; the page says above each step where it is from, else runbooks/README.md")
    unplain = [label for label in left if values.get(label)]
    empty = [label for label in _EMPTY if label in needed and label not in values]
    if empty:
        notice(f"taken as empty: {', '.join(empty)}; if the alert has them, give them, or its queries find nothing")
    if unplain:
        words = " ".join(f"{label}={shlex.quote(values[label])}" for label in unplain)
        notice(f"filled in in queries only, for a shell would not take it as it is; before you paste a command: export {words}")
