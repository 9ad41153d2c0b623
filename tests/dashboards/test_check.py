"""All checks together: on a sound board, on the boards of the suite, and on what only all of them together can have wrong."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from board_making import KNOWN, POLICY, SLOS, Json, made, panel, read
from helpers import REPOSITORY
from tachoscope_alerts.compile import event_alerts, recordings
from tachoscope_alerts.spec import files
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.check import Surroundings, check, rule_names
from tachoscope_dashboards.lint import board_json
from tachoscope_dashboards.lint.expressions import board_expressions, parseable
from tachoscope_dashboards.lint.lint import EXCEPTIONS, Excepted, exceptions
from tachoscope_dashboards.lint.tachoscope_rules import HOUSE
from tachoscope_dashboards.parts.grafana_json import to_json

EXCEPTED = exceptions(EXCEPTIONS, rule_names())
OF_ALL = tuple(one for one in EXCEPTED if not one.boards)
ALONE = Surroundings(KNOWN, POLICY, REPOSITORY / "runbooks", [read(made())], {}, OF_ALL)


@pytest.fixture(scope="module")
def suite() -> Surroundings:
    linked: dict[str, list[str]] = {}
    for uid, alert in [
        *((slo.dashboard, slo.alert) for slo in SLOS),
        *((event.dashboard, event.alert) for event in event_alerts.load(REPOSITORY / "alerts" / "events")),
    ]:
        linked.setdefault(uid, []).append(alert)
    linked.pop("", None)
    ours = [board_json.dashboard(to_json(board), board.uid) for board in boards(POLICY)]
    return replace(ALONE, ours=ours, linked=linked, excepted=EXCEPTED)


def test_the_boards_of_the_suite_check_clean_and_those_that_alerts_link_to_are_there(suite: Surroundings) -> None:
    assert "\n".join(map(str, check(suite.ours, suite, exceptions_at=str(EXCEPTIONS)))) == ""


def test_a_board_reads_each_series_that_is_recorded_for_boards_only(suite: Surroundings) -> None:
    known = recordings.load(files.path_of("recordings.yaml"))
    asked = [parseable(one.expr) for board in suite.ours for one in board_expressions(board)]

    unread = {one.name for one in known if one.boards_only} - {one.name for one in recordings.needed(asked, known)}
    assert unread == set()


@pytest.mark.bar  # a speed
def test_all_boards_are_checked_within_seconds(suite: Surroundings) -> None:
    began = time.process_time()
    check(suite.ours, suite)

    assert time.process_time() - began < 10.0


def test_a_sound_board_has_no_problem() -> None:
    assert check([read(made())], ALONE) == []


def test_rules_of_the_house_are_of_our_boards_only() -> None:
    raw = made()
    raw["tags"] = []
    raw["description"] = "Nodes."
    panel(raw, "Nodes")["fieldConfig"]["defaults"]["noValue"] = ""
    raw["editable"] = True
    of_others = {one.rule for one in check([read(raw)], ALONE)}
    raw["tags"] = ["tachoscope"]

    assert of_others == {"uneditable"}
    assert {one.rule for one in check([read(raw)], ALONE)} == {"uneditable", "question", "empty-reason"}
    assert {"question", "empty-reason"} <= {rule.name for rule in HOUSE}


def test_two_boards_of_one_uid_are_named() -> None:
    (problem,) = check([board_json.dashboard(made(), "a.json"), board_json.dashboard(made(), "b.json")], ALONE)

    assert str(problem) == "small: error: 2 boards have this uid: a.json, b.json (give each its own) [uid]"


def test_a_board_that_alerts_link_to_and_nobody_made_is_named_with_some_of_them() -> None:
    linked = {"small": ["A"], "gone": ["B"], "lost": ["C", "D", "E", "F"]}
    problems = check(ALONE.ours, replace(ALONE, linked=linked), exceptions_at="exceptions.yaml")

    assert [(one.board, one.what) for one in problems] == [
        ("gone", "no board has this uid, and B links to it"),
        ("lost", "no board has this uid, and C, D, E and others link to it"),
    ]


def test_an_exception_that_nothing_needs_is_a_problem_of_the_whole_suite_only() -> None:
    around = replace(ALONE, excepted=(*OF_ALL, Excepted("grid", "it was so once", boards=("small",))))

    (problem,) = check(ALONE.ours, around, exceptions_at="exceptions.yaml")
    assert str(problem).startswith("exceptions.yaml: error: the exception of grid for small covers nothing")
    assert check(ALONE.ours, around) == []


def test_links_may_lead_to_boards_of_the_suite_and_to_those_that_are_checked() -> None:
    def linking(uid: str, to: str) -> Json:
        raw = made()
        raw["uid"] = uid
        panel(raw, "Nodes")["links"] = [{"title": "x", "url": f"/d/{to}?${{__all_variables}}"}]
        return raw

    assert check([read(linking("a", "b")), read(linking("b", "small"))], ALONE) == []
    assert [one.rule for one in check([read(linking("a", "b"))], ALONE)] == ["links"]
