"""`tachoscope runbook`: the page of an alert or of a class, with the alert's labels in its queries and commands."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from tachoscope_cli.options import notice
from tachoscope_cli.runbooks import names, text_of
from tachoscope_core.errors import TachoscopeError

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


def runbook(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An alert, a class of bottleneck, or a procedure.")],
    labels: Annotated[
        list[str] | None, typer.Argument(metavar="LABEL=VALUE...", help="Labels of the alert, to fill in where the page needs them.")
    ] = None,
) -> None:
    """Print the runbook of an alert, with its labels filled in, or of a class of bottleneck."""
    page, left = filled(page_of(name), _values(labels or ()))
    typer.echo(page, nl=False)
    if left:
        notice(f"not filled in: {', '.join(left)}; runbooks/README.md says where each is from")


def page_of(name: str) -> str:
    """Return a page by its name, with or without `.md`.

    Raises:
        TachoscopeError: there is none of that name.
    """
    known = names()
    wanted = name.removesuffix(".md")
    if wanted in known:
        return text_of(f"runbooks/{wanted}.md")
    # An alert's name is typed from a telephone: never mind capitals.
    near = difflib.get_close_matches(wanted.lower(), [one.lower() for one in known], n=3)
    meant = [one for one in known if one.lower() in near]
    raise TachoscopeError(f"there is no runbook {name!r}", fix=f"is it {' or '.join(meant)}?" if meant else f"there are {', '.join(known)}")


def filled(page: str, values: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return a page with `${label}` replaced where the label is known, and the placeholders that are left, in their order."""
    text = _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), page)
    return text, list(dict.fromkeys(_PLACEHOLDER.findall(text)))


def _values(labels: Sequence[str]) -> dict[str, str]:
    values = {}
    for pair in labels:
        label, found, value = pair.partition("=")
        if not found or not label.isidentifier():
            raise TachoscopeError(f"{pair!r} is no label with a value", fix="write label=value, such as instance=node-1:9465")
        values[label] = value
    return values
