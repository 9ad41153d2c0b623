"""Series that rules record for boards and event alerts, so that a panel over a whole fleet reads a few hundred series and not a
million, and no two alerts add up the same ones.

Written by hand in `alerts/recordings.yaml`, as `level:metric:operation` (https://prometheus.io/docs/practices/rules/): the level
says which labels are left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tachoscope_alerts import promql
from tachoscope_alerts.compile.rules import Group, Rule
from tachoscope_alerts.promql import Aggregation, Binary, Constant, Expression, Series
from tachoscope_alerts.spec.burn_rate_windows import Timing, duration, scaled_expression
from tachoscope_core import located_yaml
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.located_yaml import Value

GROUP = "recordings"
"""Name of the rule group, and of its files."""
BOARDS_GROUP = f"{GROUP}-boards"
"""Of what only boards read, which is evaluated less often."""
_NAME = re.compile(r"(?!slo:)[a-z][a-z0-9_]*:[a-z][a-z0-9_]*:[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Recording:
    """One rule: what it records of which expression.

    Attributes:
        labels: those that its series have. reads: the names in the expression. boards_only: whether no alert reads it.
    """

    name: str
    expr: str
    labels: frozenset[str]
    reads: tuple[str, ...]
    path: str = ""
    line: int = 0
    boards_only: bool = False


def load(path: Path) -> list[Recording]:
    """Read a file of recordings.

    Raises:
        TachoscopeError: it cannot be used; with file, line, what is wrong there, and the way out.
    """
    documents = located_yaml.documents(path)
    if len(documents) != 1:
        raise TachoscopeError(f"{path} holds {len(documents)} documents, not one", fix="write recordings: once")
    items = documents[0].section(("recordings",)).required("recordings", "add recordings: and a list of them").items()
    found = [_recording(item) for item in items]
    for number, one in enumerate(found):
        if twice := [before.line for before in found[:number] if before.name == one.name]:
            raise TachoscopeError(
                f"{one.path}:{one.line}: {one.name} is recorded in line {twice[0]} already", fix="give each a different name"
            )
        if late := {later.name for later in found[number:]} & set(one.reads):
            raise TachoscopeError(
                f"{one.path}:{one.line}: {one.name} reads {min(late)}, which is not recorded before it",
                fix="write it below what it reads",
            )
    return found


def groups(recordings: Sequence[Recording], timing: Timing) -> list[Group]:
    """Return their rule groups, without empty ones; a window has at least the scrapes that a rate needs."""
    of_boards = [one for one in recordings if one.boards_only]
    others = [one for one in recordings if not one.boards_only]
    return [
        {"name": name, "interval": duration(interval), "rules": [_rule(one, timing) for one in those]}
        for name, interval, those in ((GROUP, timing.interval, others), (BOARDS_GROUP, timing.board_interval, of_boards))
        if those
    ]


def _rule(recording: Recording, timing: Timing) -> Rule:
    return {"record": recording.name, "expr": scaled_expression(recording.expr, timing)}


def needed(expressions: Iterable[str], recordings: Sequence[Recording]) -> list[Recording]:
    """Return the recordings that expressions read, directly or through others.

    Raises:
        TachoscopeError: an expression cannot be read.
    """
    wanted = {series.metric for expression in expressions for series, _ in promql.read(promql.parse(expression))}
    found = []
    for one in reversed(recordings):  # each reads those before it
        if one.name in wanted:
            found.append(one)
            wanted.update(one.reads)
    return found[::-1]


def values_of(recording: Recording, known: Mapping[str, Mapping[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Return the values that its labels may have, of those labels whose values are all known.

    Args:
        known: by name of a series, the values of its labels.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name in recording.reads:
        for label, values in known.get(name, {}).items():
            if label in recording.labels:
                found[label] = tuple(dict.fromkeys((*found.get(label, ()), *values)))
    return found


def _recording(item: Value) -> Recording:
    parts = item.section(("record", "expr", "boards_only"))
    name, expr = parts.required("record", "add record: and a name"), parts.required("expr", "add expr: and PromQL")
    if not _NAME.fullmatch(name.text()):
        fix = "write level:metric:operation, such as job:tachoscope_steps:rate1m; slo: is of the objectives"
        raise name.error(f"is {name.text()!r}, which is not a name of a recording", fix)
    try:
        tree = promql.parse(expr.text())
    except TachoscopeError as error:
        raise expr.error(f"cannot be read: {error}", "correct the expression") from None
    reads = tuple(dict.fromkeys(series.metric for series, _ in promql.read(tree)))
    boards_only = "boards_only" in parts.values and parts.values["boards_only"].flag()
    return Recording(name.text(), expr.text().strip(), _labels(tree, expr), reads, item.path, item.line, boards_only)


def _labels(tree: Expression, place: Value) -> frozenset[str]:
    kept = set(_kept(tree))
    if len(kept) == 1 and None not in kept:
        return frozenset(next(iter(kept)) or ())
    fix = "write sum by (...) (...), on both sides of an operator the same labels"
    raise place.error("does not say which labels it keeps", fix)


def _kept(tree: Expression) -> Iterator[frozenset[str] | None]:
    """Yield the labels that each side of an operator keeps, None if unspecified; recorded series go with the other side."""
    match tree:
        case Binary():
            yield from _kept(tree.left)
            yield from _kept(tree.right)
        case Aggregation() if not tree.without:
            yield None if tree.labels is None else frozenset(tree.labels)
        case Series() if ":" in tree.metric:
            pass
        case Constant():
            pass
        case _:
            yield None
