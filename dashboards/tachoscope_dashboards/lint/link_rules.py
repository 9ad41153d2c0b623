"""The rule of links: a runbook that is there, a board that has the variables, a page of the explorer and what that knows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from tachoscope_alerts.spec.policy import Policy
from tachoscope_dashboards.lint.board_json import Dashboard
from tachoscope_dashboards.lint.expressions import variables_in
from tachoscope_dashboards.lint.lint import Finding, Rule, panel_named

PAGES: Mapping[str, frozenset[str]] = {
    page: frozenset({"job", "rank", "service", "model", "slo", "from", "to"})
    for page in ("jobs", "job", "trace", "compare", "what-if", "slos", "inference")
}
"""Pages of the explorer, each with the parameters that it takes."""
SCOPE = frozenset({"cluster", "namespace"})
"""Variables that say what all panels of a board are limited to."""
_TAKEN = re.compile(r"\$\{(\w+):queryparam\}")


@dataclass(frozen=True, slots=True)
class Targets:
    """What links may lead to.

    Attributes:
        policy: whose bases links begin with. runbooks: the folder; None: not looked for.
        boards: the variables of each, by uid.
    """

    policy: Policy
    runbooks: Path | None
    boards: Mapping[str, Collection[str]]


def rule(targets: Targets) -> Rule:
    """Return the rule on links; `targets`: the boards, pages and runbooks that links can lead to."""
    return Rule("links", "links lead to what is there", lambda board: _links(targets, board))


def _links(targets: Targets, board: Dashboard) -> Iterator[Finding]:
    for panel in board.all_panels():
        for link in panel.all_links():
            for what, fix in (*_of_link(link.url, targets), *_dropped(link.url, board, targets.boards)):
                yield Finding(panel_named(panel.name), f"its link {link.title!r} {what}", fix)


def _of_link(url: str, targets: Targets) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a link, and the way out; of a link to elsewhere nothing is known."""
    policy = targets.policy
    if url.startswith(f"{policy.runbook_base}/"):
        name = url.removeprefix(f"{policy.runbook_base}/")
        is_fixed = not variables_in(name)  # a table's links name what the row is about
        if is_fixed and targets.runbooks is not None and not (targets.runbooks / name).is_file():
            yield f"leads to the runbook {name}, which does not exist", f"name an alert that has one in {targets.runbooks}"
    elif url.startswith(f"{policy.explorer_base}/"):
        yield from _of_explorer(url.removeprefix(f"{policy.explorer_base}/"))
    elif url.startswith("/d/"):
        yield from _of_board(url, targets.boards)


def _of_explorer(rest: str) -> Iterator[tuple[str, str]]:
    page, _, query = rest.partition("?")
    if page not in PAGES:
        yield f"leads to the page {page!r}, which the explorer does not have", f"there are {', '.join(PAGES)}"
        return
    for name, _ in parse_qsl(query, keep_blank_values=True):
        if name not in PAGES[page]:
            yield f"gives {name} to the explorer, which does not know it", f"it takes {', '.join(sorted(PAGES[page]))}"


def _of_board(url: str, boards: Mapping[str, Collection[str]]) -> Iterator[tuple[str, str]]:
    parts = urlsplit(url)
    uid = parts.path.removeprefix("/d/").partition("/")[0]
    if uid not in boards:
        yield f"leads to the board {uid!r}, which does not exist", f"there are {', '.join(sorted(boards))}"
        return
    for name in _given(parts.query):
        if name not in boards[uid]:
            yield f"sets {name} on the board {uid}, which has no such variable", f"it has {', '.join(sorted(boards[uid]))}"


def _dropped(url: str, board: Dashboard, boards: Mapping[str, Collection[str]]) -> Iterator[tuple[str, str]]:
    """Yield what is chosen here, and could be there, and does not go along; to the board itself the scope has to."""
    parts = urlsplit(url)
    uid = parts.path.removeprefix("/d/").partition("/")[0]
    if not url.startswith("/d/") or uid not in boards or "__all_variables" in variables_in(url):
        return
    here = [one.name for one in board.variables()]
    for name in here if uid != board.uid else [name for name in here if name in SCOPE]:
        if name in boards[uid] and name not in _given(parts.query):
            yield f"drops the {name} that is chosen, which the board {uid} has too", f"add ${{{name}:queryparam}}"


def _given(query: str) -> list[str]:
    names = [name.removeprefix("var-") for name, _ in parse_qsl(query, keep_blank_values=True) if name.startswith("var-")]
    return [*names, *_TAKEN.findall(query)]
