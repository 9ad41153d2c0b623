"""The expressions of a board, where they stand, and as a server reads them: without Grafana's variables.

https://grafana.com/docs/grafana/latest/dashboards/variables/variable-syntax/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tachoscope_dashboards.lint.board_json import Dashboard, DataSourceRef, Panel, Target, Variable

Kind = Literal["panel", "variable", "annotation"]

RATE_INTERVAL, INTERVAL, RANGE = "__rate_interval", "__interval", "__range"
GLOBALS: Mapping[str, str] = {
    RATE_INTERVAL: "1m",
    INTERVAL: "1m",
    RANGE: "1h",
    "__interval_ms": "60000",
    "__range_ms": "3600000",
    "__range_s": "3600",
    "__from": "0",
    "__to": "0",
}
"""Grafana's own variables that expressions may use, each with a value that it may have."""
_VARIABLE = re.compile(r"\$(?P<plain>[a-zA-Z_]\w*)|\$\{(?P<braced>[a-zA-Z_]\w*)[^}]*\}|\[\[(?P<old>[a-zA-Z_]\w*)[^\]]*\]\]")
_MATCHER = re.compile(r'(?P<operator>=~|!~|!=|=)(?P<space>\s*)"(?P<value>(?:[^"\\]|\\.)*)"')
_TEXT = re.compile(r'("(?:[^"\\]|\\.)*")')
_CALL = re.compile(r"\s*(?P<function>[a-z_]+)\((?P<arguments>.*)\)\s*", re.DOTALL)
_PROMQL = ("", "prometheus", "grafana-amazonprometheus-datasource", "grafana-azureprometheus-datasource")
_LONGEST = 160
NOBODY = "-"
"""What no label is, for matchers that exclude what is chosen."""


@dataclass(frozen=True, slots=True)
class BoardExpression:
    """An expression of a board, with its variables.

    Attributes:
        kind, name: of what it stands in: a panel's title, the name of a variable or of an annotation.
        expr: as it is written; of a variable with `label_values`, one with the same labels. panel, target: of a panel.
    """

    kind: Kind
    name: str
    expr: str
    panel: Panel | None = None
    target: Target | None = None

    @property
    def where(self) -> str:
        return f"{self.kind} {self.name!r}"


def board_expressions(board: Dashboard) -> Iterator[BoardExpression]:
    """Yield all PromQL of a board: of its panels, variables and annotations."""
    for panel in board.query_panels():
        for target in panel.targets:
            if target.expr and speaks_promql(target.datasource or panel.datasource):
                yield BoardExpression("panel", panel.name, target.expr, panel, target)
    for variable in board.variables():
        found = of_variable(variable)
        if found:
            yield BoardExpression("variable", variable.name, found)
    for annotation in board.annotations.list:
        if annotation.expr and speaks_promql(annotation.datasource):
            yield BoardExpression("annotation", annotation.name, annotation.expr)


def of_variable(variable: Variable) -> str:
    """Return the expression that gives a variable its values; nothing where it asks for names alone."""
    if variable.type != "query" or not speaks_promql(variable.datasource):
        return ""
    function, arguments = call(variable.query_text)
    if function == "query_result":
        return arguments
    selector, comma, label = arguments.rpartition(",")
    return f"group by ({label.strip()}) ({selector.strip()})" if function == "label_values" and comma else ""


def call(query: str) -> tuple[str, str]:
    """Return the function and the arguments of a variable's query; of what is none, nothing."""
    found = _CALL.fullmatch(query)
    return (found["function"], found["arguments"]) if found else ("", "")


def speaks_promql(source: DataSourceRef | str) -> bool:
    """Return whether a data source may understand PromQL: one that is named without its type may."""
    return not isinstance(source, DataSourceRef) or (source.type in _PROMQL and not source.uid.startswith(("__", "--")))


def speaks_logql(source: DataSourceRef | str) -> bool:
    """Return whether a data source is known to understand LogQL."""
    return isinstance(source, DataSourceRef) and source.type == "loki"


def variables_in(text: str) -> set[str]:
    """Return the names of the variables that a text uses, Grafana's own among them."""
    return {_name(found) for found in _VARIABLE.finditer(text)}


def without_variables(expr: str, values: Mapping[str, str] = GLOBALS) -> str:
    """Return an expression without variables: matchers match whatever can be chosen.

    Args:
        values: of Grafana's own variables; others are 1 outside of quotes.
    """
    return _VARIABLE.sub(lambda found: values.get(_name(found), "1"), _MATCHER.sub(_any, expr))


def parseable(expr: str) -> str:
    """Return an expression with its variables in matchers, and the others replaced: so it can be taken apart."""
    parts = _TEXT.split(expr)
    return "".join(part if part.startswith('"') else without_variables(part) for part in parts)


def short(expr: str) -> str:
    """Return an expression for a message: one line, and not a long one."""
    line = " ".join(expr.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _any(found: re.Match[str]) -> str:
    """Return a matcher that takes all that a variable in it may be."""
    if not _VARIABLE.search(found["value"]):
        return found[0]
    if found["operator"].startswith("!"):
        return f'!={found["space"]}"{NOBODY}"'
    return f'=~{found["space"]}"{_VARIABLE.sub(".*", found["value"])}"'


def _name(found: re.Match[str]) -> str:
    return found["plain"] or found["braced"] or found["old"]
