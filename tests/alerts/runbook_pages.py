"""Takes a runbook apart: its queries, commands and links."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from string import Template

from helpers import REPOSITORY
from tachoscope_cli.runbooks import parts as runbook_parts
from tachoscope_cli.runbooks.parts import Query
from tachoscope_core import yaml_text

RUNBOOKS = REPOSITORY / "runbooks"
ALERTS = REPOSITORY / "alerts"


@cache
def alert_pages() -> dict[str, str]:
    """Return the pages of alerts by their names, which begin with a capital; those of classes and procedures do not."""
    return {path.stem: path.read_text() for path in sorted(RUNBOOKS.glob("[A-Z]*.md")) if path.stem != "README"}


@cache
def procedures() -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted(RUNBOOKS.glob("procedure-*.md"))}


def alert_names() -> set[str]:
    """Return the alerts that there are, as the files say that they are written in."""
    names: set[str] = set()
    for path in sorted((ALERTS / "slos").glob("*.yaml")):
        for document in yaml_text.load_all(path.read_text()):
            names |= {name.strip() for value in _values_of(document, "tachoscope.dev/alert") for name in value.split(",")}
    for path in sorted((ALERTS / "events").glob("*.yaml")):
        names |= {alert["alert"] for alert in yaml_text.load(path.read_text())["alerts"]}
    return names


def _values_of(node: object, key: str) -> list[str]:
    """Return the values of a key wherever in a document it stands: an objective may have an annotation of its own."""
    if isinstance(node, list):
        return [value for item in node for value in _values_of(item, key)]
    if not isinstance(node, dict):
        return []
    own = [str(node[key])] if key in node else []
    return own + [value for item in node.values() for value in _values_of(item, key)]


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language, which may be empty."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def section(text: str, heading: str) -> str:
    """Return what stands below a heading."""
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def queries(text: str) -> list[Query]:
    """Return the queries of a page; each has two lines, and a block that is made otherwise fails here."""
    return [query for block in blocks(text, "promql") for query in runbook_parts.queries(0, block)]


def filled(text: str, labels: dict[str, str]) -> str:
    """Return a text with `${label}` replaced; a label that is not among them raises KeyError."""
    return Template(text).substitute(labels)


def links(text: str) -> list[str]:
    """Return where a page leads to on this site."""
    found = re.findall(r"\[[^\]]+\]\(([^)\s]+)\)", prose(text))
    return [link for link in found if not link.startswith(("https://", "http://"))]


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(path.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
