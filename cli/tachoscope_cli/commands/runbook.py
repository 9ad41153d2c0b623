"""`tachoscope runbook`: the page of an alert or of a class, with the alert's labels in its queries and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from tachoscope_cli.common.options import print_notice
from tachoscope_cli.runbooks.pages import EMPTY, filled, labels_needed, page_of
from tachoscope_core.errors import TachoscopeError
from tachoscope_show.text.runbook_pages import names

_COMMENT = re.compile(r"^<!--.*-->\n", re.MULTILINE)
"""Where generated parts begin and end is of use to nobody who reads the page."""


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
    _tell(values, needed=labels_needed(page), left=left)


def _values(labels: Sequence[str]) -> dict[str, str]:
    values = {}
    for pair in labels:
        label, found, value = pair.partition("=")
        if not found or not label.isidentifier():
            raise TachoscopeError(f"{pair!r} is not a label with a value", fix="write label=value, such as instance=node-1:9465")
        if not value.isprintable():
            raise TachoscopeError(
                f"the value of {label} holds a line break or another control character: {value!r}",
                fix="write it as the alert shows it, in one line",
            )
        values[label] = value
    return values


def _tell(values: Mapping[str, str], *, needed: Sequence[str], left: Sequence[str]) -> None:
    """Print below the page which labels were not used."""
    unused = [label for label in values if label not in needed]
    if unused:
        takes = f"it takes {', '.join(needed)}" if needed else "it takes none"
        print_notice(f"not used by this page: {', '.join(unused)}; {takes}")
    missing = [label for label in left if label not in {**EMPTY, **values}]
    if missing:
        print_notice(f"not filled in: {', '.join(missing)}; sources: above each step, or runbooks/README.md")
    unplain = [label for label in left if values.get(label)]
    empty = [label for label in EMPTY if label in needed and label not in values]
    if empty:
        print_notice(f"assumed empty: {', '.join(empty)}; set those that the alert has, or its queries find nothing")
    if unplain:
        words = " ".join(f"{label}={shlex.quote(values[label])}" for label in unplain)
        print_notice(
            f"filled in in queries only, since a shell would interpret the value; before you paste a command: export {words}"
        )
