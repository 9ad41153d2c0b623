"""Links of panels: to runbooks, boards and pages of the explorer that there are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from board_making import POLICY, found, made, panel
from helpers import REPOSITORY
from tachoscope_dashboards.lint.link_rules import PAGES, Targets, rule
from tachoscope_dashboards.parts.links import board, explorer, runbook

BOARDS = {
    "small": {"cluster", "namespace", "node", "training_job", "datasource"},
    "tachoscope-fleet": {"cluster", "datasource"},
    "other": {"cluster", "namespace", "node", "datasource"},
}
RULE = rule(Targets(POLICY, REPOSITORY / "runbooks", BOARDS))


def problems(url: str) -> Sequence[str]:
    """Return what is wrong with a panel's link to this address."""
    raw = made()
    panel(raw, "Nodes")["links"] = [{"title": "There", "url": url}]
    return [one.what for one in found([RULE], "links", raw)]


def test_the_links_of_a_sound_board_lead_somewhere() -> None:
    assert found([RULE], "links", made()) == []


def test_a_runbook_has_to_be_there() -> None:
    assert problems(runbook(POLICY, "AgentDown").url) == []
    assert problems(runbook(POLICY, "AgentUp").url) == ["its link 'There' leads to the runbook AgentUp.md, which does not exist"]
    assert problems(f"{POLICY.runbook_base}/${{__value.raw}}.md") == []


def test_a_board_has_to_be_there_and_to_have_the_variables() -> None:
    assert problems(board("fleet", "Fleet", {"cluster": "${cluster}"}).url) == []
    assert problems(board("fleet", "Fleet", {}).url) == [
        "its link 'There' drops the cluster that is chosen, which the board tachoscope-fleet has too"
    ]
    assert problems(board("fleets", "Fleet", {}).url) == ["its link 'There' leads to the board 'fleets', which does not exist"]
    assert problems(board("fleet", "Fleet", {"node": "${node}", "training_job": "${__data.fields.Job}"}).url) == [
        "its link 'There' sets training_job on the board tachoscope-fleet, which has no such variable",
        "its link 'There' sets node on the board tachoscope-fleet, which has no such variable",
        "its link 'There' drops the cluster that is chosen, which the board tachoscope-fleet has too",
    ]


@pytest.mark.parametrize("page", PAGES)
def test_pages_of_the_explorer_take_the_time_range(page: str) -> None:
    assert problems(explorer(POLICY, page, "Explorer", {}).url) == []


def test_what_is_chosen_goes_along_where_both_boards_have_it_and_to_the_board_itself_the_scope() -> None:
    scope = {"cluster": "${cluster}", "namespace": "${namespace}"}
    assert problems(board("other", "Other", scope).url) == [
        "its link 'There' drops the node that is chosen, which the board other has too"
    ]
    assert problems(board("other", "Other", scope | {"node": "${__value.raw}"}).url) == []
    assert problems(board("small", "This one", scope).url) == []
    assert problems(board("small", "This one", {"node": "${__value.raw}"}).url) == [
        f"its link 'There' drops the {name} that is chosen, which the board small has too" for name in scope
    ]


def test_a_page_of_the_explorer_has_to_be_there_and_to_take_what_is_given() -> None:
    (fault,) = problems(explorer(POLICY, "ranks", "Explorer", {}).url)
    assert "the page 'ranks', which the explorer does not have" in fault
    (fault,) = problems(explorer(POLICY, "job", "Explorer", {"training_job": "x"}).url)
    assert "gives training_job to the explorer" in fault


def test_nothing_is_known_of_other_addresses_and_nothing_is_looked_for_in_no_folder() -> None:
    assert problems("https://www.example.org/ranks") == []
    without = rule(Targets(POLICY, None, BOARDS))
    raw = made()
    panel(raw, "Nodes")["links"] = [{"title": "There", "url": runbook(POLICY, "AgentUp").url}]
    assert found([without], "links", raw) == []


def test_links_of_cells_are_looked_at_too() -> None:
    raw = made()
    panel(raw, "Ranks")["fieldConfig"]["overrides"][0]["properties"][-1]["value"][0]["url"] = "/d/nowhere"

    assert [one.where for one in found([RULE], "links", raw)] == ["panel 'Ranks'"]
