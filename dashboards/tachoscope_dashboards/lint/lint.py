"""Rules that every board keeps: those of Grafana's dashboard-linter, written again, our own, and exceptions with their reasons.

A rule looks at one board and yields what it finds there; it prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import yaml

from tachoscope_alerts.compile.links import board_uid
from tachoscope_core import yaml_text
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.lint.board_json import Dashboard

EXCEPTIONS = Path(__file__).parents[1] / "exceptions.yaml"


class Finding(NamedTuple):
    """What a rule finds. `where`: such as `panel 'Agents up'`, nothing for the board itself."""

    where: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; `about`: a sentence for people."""

    name: str
    about: str
    find: Callable[[Dashboard], Iterable[Finding]]


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A finding in a board. An error must be fixed, a note may stay."""

    board: str
    where: str
    rule: str
    what: str
    fix: str
    severity: Literal["error", "note"] = "error"

    def __str__(self) -> str:
        place = f"{self.board}: {self.where}" if self.where else self.board
        return f"{place}: {self.severity}: {self.what} ({self.fix}) [{self.rule}]"


class Excepted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a rule is not held, and why. Without `boards` on all, by name or uid; without `panels` on all of these, by title."""

    rule: str
    reason: str
    boards: tuple[str, ...] = ()
    panels: tuple[str, ...] = ()

    def covers(self, problem: Problem, uid: str) -> bool:
        """Return whether it is about a problem of the board of this uid."""
        here = not self.boards or uid in map(board_uid, self.boards)
        return self.rule == problem.rule and here and (not self.panels or problem.where in map(panel_named, self.panels))


def panel_named(title: str) -> str:
    """Return the place of a panel, as findings name it."""
    return f"panel {title!r}"


def exceptions(path: Path, rules: Iterable[str]) -> tuple[Excepted, ...]:
    """Return the exceptions of a file.

    Args:
        rules: names of all rules that there are.

    Raises:
        TachoscopeError: the file cannot be used.
    """
    known = set(rules)
    try:
        found = msgspec.convert(yaml_text.load(path.read_bytes()) or [], tuple[Excepted, ...])
    except OSError as error:
        raise TachoscopeError(f"{path} cannot be read: {error.strerror}", fix="name a file of exceptions") from None
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        reason = " ".join(str(error).split())
        fix = "write a list of rule:, reason:, perhaps boards: and panels:"
        raise TachoscopeError(f"{path} is not a list of exceptions: {reason}", fix=fix) from None
    for one in found:
        if one.rule not in known:
            raise TachoscopeError(f"{path}: unknown rule {one.rule!r}", fix=f"there are {', '.join(sorted(known))}")
        if not one.reason.strip():
            raise TachoscopeError(f"{path}: the exception of {one.rule} has no reason", fix="give the reason for the exception")
    return found


def lint(board: Dashboard, rules: Sequence[Rule]) -> list[Problem]:
    """Return what the rules find in a board, without exceptions."""
    return sorted({Problem(board.place, *_placed(rule, finding)) for rule in rules for finding in rule.find(board)})


def without_excepted(problems: Iterable[Problem], uid: str, excepted: Sequence[Excepted]) -> tuple[list[Problem], set[Excepted]]:
    """Return the problems of a board that stay, and the exceptions that were used."""
    kept, used = [], set()
    for problem in problems:
        covering = [one for one in excepted if one.covers(problem, uid)]
        used.update(covering)
        if not covering:
            kept.append(problem)
    return kept, used


def unused(excepted: Sequence[Excepted], used: set[Excepted], place: str) -> Iterator[Problem]:
    """Yield the exceptions that nothing needs any more."""
    for one in excepted:
        if one not in used:
            of = ", ".join([*one.boards, *one.panels]) or "all boards"
            yield Problem(place, "", "exceptions", f"the exception of {one.rule} for {of} covers nothing", "take it out")


def _placed(rule: Rule, finding: Finding) -> tuple[str, str, str, str]:
    return finding.where, rule.name, finding.what, finding.fix
