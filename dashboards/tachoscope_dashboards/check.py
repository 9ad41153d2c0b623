"""All checks of boards that need no Grafana: expressions, rules, links, and that what alerts link to is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tachoscope_alerts.compile.links import board_uid
from tachoscope_alerts.lint.catalogue import Catalogue
from tachoscope_alerts.spec.policy import Policy
from tachoscope_dashboards.lint import grafana_rules as lint_rules
from tachoscope_dashboards.lint import link_rules, query_rules
from tachoscope_dashboards.lint import lint as linter
from tachoscope_dashboards.lint import tachoscope_rules as own_rules
from tachoscope_dashboards.lint.board_json import Dashboard
from tachoscope_dashboards.lint.link_rules import Targets
from tachoscope_dashboards.lint.lint import Excepted, Problem, Rule


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What boards are compared with.

    Attributes:
        known: the catalogue, with the series that rules record. policy: whose bases links begin with.
        runbooks: the folder; None: not looked for.
        ours: all boards of the suite, which links may lead to. linked: names of boards that alerts link to, each with the alerts.
        excepted: where rules are not held.
    """

    known: Catalogue
    policy: Policy
    runbooks: Path | None
    ours: Sequence[Dashboard]
    linked: Mapping[str, Sequence[str]]
    excepted: Sequence[Excepted] = ()


def rule_names() -> list[str]:
    """Return the names of all rules that a board is checked by."""
    of_queries = query_rules.rules({})
    return [*(rule.name for rule in (*lint_rules.RULES, *own_rules.RULES, *own_rules.HOUSE, *of_queries)), "links"]


def check(boards: Sequence[Dashboard], around: Surroundings, *, exceptions_at: str = "") -> list[Problem]:
    """Return the problems of boards, in the order of boards, places and rules.

    Args:
        exceptions_at: where the exceptions were read, if the boards are the whole suite: then boards that alerts link to and nobody
            made are problems too, and exceptions that nothing needs.
    """
    variables = {board.uid: frozenset(one.name for one in board.variables()) for board in (*around.ours, *boards)}
    links = link_rules.rule(Targets(around.policy, around.runbooks, variables))
    of_all: tuple[Rule, ...] = (*lint_rules.RULES, *own_rules.RULES, *query_rules.rules(around.known), links)
    found: list[Problem] = [*_same_uid(boards)]
    used: set[Excepted] = set()
    for board in boards:
        rules = (*of_all, *own_rules.HOUSE) if own_rules.TAG in board.tags else of_all
        kept, needed = linter.without_excepted(linter.lint(board, rules), board.uid, around.excepted)
        found += kept
        used |= needed
    if exceptions_at:
        found += [*_unmade(around), *linter.unused(around.excepted, used, exceptions_at)]
    return sorted(set(found))


def _same_uid(boards: Sequence[Dashboard]) -> Iterator[Problem]:
    for uid, count in Counter(board.uid for board in boards).items():
        if count > 1:
            places = ", ".join(board.place for board in boards if board.uid == uid)
            yield Problem(uid, "", "uid", f"{count} boards have this uid: {places}", "give each its own")


def _unmade(around: Surroundings) -> Iterator[Problem]:
    made = {board.uid for board in around.ours}
    for name, alerts in around.linked.items():
        if board_uid(name) not in made:
            some = f"{', '.join(alerts[:3])}{' and others' if len(alerts) > 3 else ''}"
            what = f"no board has this uid, and {some} link{'s' if len(alerts) == 1 else ''} to it"
            yield Problem(name, "", "uid", what, "make it, or name another at the alert")
