"""Rules of expressions that need the catalogue: names and labels that there are, series within the board's scope, and what legends
and columns are named after.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from tachoscope_alerts import promql
from tachoscope_alerts.lint import rule_expressions
from tachoscope_alerts.lint.catalogue import Catalogue, KnownSeries
from tachoscope_alerts.lint.label_flow import labels_of
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.metric import IDENTITY, NAMESPACE, WORKLOADS
from tachoscope_dashboards.lint.board_json import Dashboard, Panel
from tachoscope_dashboards.lint.expressions import (
    BoardExpression,
    board_expressions,
    call,
    parseable,
    short,
    variables_in,
    without_variables,
)
from tachoscope_dashboards.lint.lint import Finding, Rule, panel_named

FREE = frozenset({"rank", "slo"})
"""Variables of a board that a panel may leave aside: it shows all ranks of the job, or all objectives."""
_PLURALS = {"training_job": "jobs", "gpu": "GPUs", NAMESPACE: "namespaces", "job_team": "teams"}
_LEGEND = re.compile(r"\{\{\s*([a-zA-Z_]\w*)\s*\}\}")
_OURS = "core/"
_FIELD = re.compile(r"\$\{__data\.fields(?:\.|\[\")([^}\"]+)(?:\"\])?\}")
_OF_ROW = re.compile(r"\$\{__(?:data|value|field|series)\b")
_VALUE_FIELD = re.compile(r"Value(?: #(?P<name>\w+))?")


def rules(known: Catalogue) -> tuple[Rule, ...]:
    """Return the rules on expressions; `known`: the metrics that they can use."""
    return (
        Rule("catalogue", "expressions use names and labels that there are", partial(_catalogue, known)),
        Rule("identity", "jobs and services of one name are not merged", _identity),
        Rule("scope", "series are limited to what is chosen, or the panel says that they are not", partial(_scope, known)),
        Rule("legend", "legends and marks are named by labels that the series have", partial(_legend, known)),
        Rule("columns", "columns and rows that are named are there", partial(_columns, known)),
    )


def _catalogue(known: Catalogue, board: Dashboard) -> Iterator[Finding]:
    for one in board_expressions(board):
        try:
            found = rule_expressions.faults_of_query(without_variables(one.expr), known)
        except TachoscopeError as error:
            yield Finding(one.where, str(error), "correct the expression")
            continue
        yield from (Finding(one.where, fault.what, fault.fix) for fault in found)


def _identity(board: Dashboard) -> Iterator[Finding]:
    for one in board_expressions(board):
        if one.kind == "variable":  # it lists names, and no more
            continue
        try:
            found = rule_expressions.merged_workloads(without_variables(one.expr))
        except TachoscopeError:  # the rule `catalogue` says so
            continue
        yield from (Finding(one.where, fault.what, fault.fix) for fault in found)


def _scope(known: Catalogue, board: Dashboard) -> Iterator[Finding]:
    labels = chosen_labels(board)
    first: dict[str, str] = {}
    for name, label in labels.items():
        first.setdefault(label, name)  # others choose among its values
    for one in board_expressions(board):
        if one.kind == "variable":
            continue
        for series in _series(one):
            of = known.get(series.metric)
            if of is None:
                continue
            limited = {labels.get(name) for matcher in series.matchers for name in variables_in(matcher.value)}
            for label, name in first.items():
                if label in limited or name in FREE or (label in IDENTITY[1:] and not of.labels & set(WORKLOADS)):
                    continue
                if _is_raw(of) and of.may_have_label(label):
                    fix = f'add {label}=~"${name}", or count it in a recorded series'
                    yield Finding(one.where, f"{series.metric} is not limited to the {label} that is chosen", fix)
                elif of.recorded and one.panel is not None and not _says_all(board, one.panel, name):
                    what = f"{series.metric} is of all {_several(name)}, whichever is chosen, and nothing says so"
                    yield Finding(one.where, what, f'write "of all {_several(name)}" into its description, or limit it')


def _says_all(board: Dashboard, panel: Panel, name: str) -> bool:
    """Whether a panel, or the head of its board, says that it is of all values of a variable: `of all clusters and nodes`."""
    head = [str(one.options.get("content", "")) for one in board.panels[:1] if one.type == "text"]
    words = rf"\ball (?:[\w-]+(?:, | and ))*{_several(name)}\b"
    return any(re.search(words, text) for text in (panel.description, *head))


def _several(name: str) -> str:
    return _PLURALS.get(name, f"{name}s")


def chosen_labels(board: Dashboard) -> dict[str, str]:
    """Return the variables of a board that are values of a label, each with the label."""
    found = {}
    for one in board.variables():
        function, arguments = call(one.query_text)
        if one.type == "query" and function == "label_values":
            found[one.name] = arguments.rpartition(",")[2].strip()
    return found


def _legend(known: Catalogue, board: Dashboard) -> Iterator[Finding]:
    for one in board_expressions(board):
        if one.target is not None:
            yield from _unknown_labels(one, one.target.legend_format, "its legend", known)
    for mark in board.annotations.list:
        one = BoardExpression("annotation", mark.name, mark.expr)
        if mark.expr:
            yield from _unknown_labels(one, mark.title_format, "its title", known)


def _unknown_labels(one: BoardExpression, text: str, what: str, known: Catalogue) -> Iterator[Finding]:
    there = _labels(one, known)
    for label in _LEGEND.findall(text):
        if there is not None and label not in there and label != "__name__":
            has = f"they have {', '.join(sorted(there))}" if there else "they have none"
            yield Finding(one.where, f"{what} names {label}, which the series do not have", f"{has}: {short(one.expr)}")


def _columns(known: Catalogue, board: Dashboard) -> Iterator[Finding]:
    of_panels: dict[int, list[BoardExpression]] = {}
    for one in board_expressions(board):
        if one.panel is not None and one.panel.type == "table":
            of_panels.setdefault(one.panel.id, []).append(one)
    for panel in board.query_panels():
        if panel.id in of_panels:
            yield from _sources(panel, of_panels[panel.id], known)
            yield from _titles(panel)
        for link in panel.links:
            if _OF_ROW.search(link.url):
                yield Finding(panel_named(panel.name), f"its link {link.title!r} names a row", "give the link to a column")


def _sources(panel: Panel, queries: Sequence[BoardExpression], known: Catalogue) -> Iterator[Finding]:
    """Yield columns that are neither a label nor a query of their table."""
    labels = [_labels(one, known) for one in queries]
    names = sorted({one.target.ref_id for one in queries if one.target is not None})
    for field in _renamed(panel):
        value = _VALUE_FIELD.fullmatch(field)
        if value and value["name"] and value["name"] not in names:
            yield Finding(panel_named(panel.name), f"no query of it is named {value['name']}", f"there are {', '.join(names)}")
        elif not value and field != "Time" and all(there is not None and field not in there for there in labels):
            there = sorted({label for one in labels if one is not None for label in one})
            fix = f"there are {', '.join(there) or 'none'}"
            yield Finding(panel_named(panel.name), f"the column {field} is not a label of what it asks", fix)


def _titles(panel: Panel) -> Iterator[Finding]:
    """Yield columns that settings or links name, and that there are not."""
    titles = set(_renamed(panel).values())
    named = [str(one.matcher.get("options")) for one in panel.field_config.overrides if one.matcher.get("id") == "byName"]
    named += [field for link in panel.all_links() for field in _FIELD.findall(link.url)]
    for name in dict.fromkeys(named):
        if titles and name not in titles:
            yield Finding(panel_named(panel.name), f"it names a column {name!r}", f"there are {', '.join(sorted(titles))}")


def _renamed(panel: Panel) -> dict[str, str]:
    """Return the fields that a table renames, each with its title."""
    found: dict[str, str] = {}
    for one in panel.transformations:
        if one.get("id") == "organize":
            found |= (one.get("options") or {}).get("renameByName") or {}
    return found


def _series(one: BoardExpression) -> Iterator[promql.Series]:
    try:
        tree = promql.parse(parseable(one.expr))
    except TachoscopeError:  # the rule `catalogue` says so
        return
    yield from dict.fromkeys(series for series, _ in promql.read(tree))


def _labels(one: BoardExpression, known: Catalogue) -> frozenset[str] | None:
    try:
        return labels_of(without_variables(one.expr), known)
    except TachoscopeError:  # the rule `catalogue` says so
        return None


def _is_raw(of: KnownSeries) -> bool:
    """Return whether a series is one of ours that no rule has made."""
    return of.source.startswith(_OURS) and not of.recorded
