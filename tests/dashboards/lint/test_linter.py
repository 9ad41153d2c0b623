"""Exceptions from rules: which problems they cover, and which files of them are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from board_making import made, read
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.check import rule_names
from tachoscope_dashboards.lint.lint import (
    EXCEPTIONS,
    Excepted,
    Finding,
    Problem,
    Rule,
    exceptions,
    lint,
    panel_named,
    unused,
    without_excepted,
)

RULE = Rule("grid", "none", lambda board: [Finding(panel_named("Nodes"), "what", "fix"), Finding("", "other", "fix")])


def problems() -> list[Problem]:
    return lint(read(made()), [RULE])


def test_a_problem_names_board_panel_offender_way_out_and_rule() -> None:
    board, panel = map(str, problems())

    assert board == "small: error: other (fix) [grid]"
    assert panel == "small: panel 'Nodes': error: what (fix) [grid]"


@pytest.mark.parametrize(
    ("excepted", "kept"),
    [
        (Excepted("grid", "why"), []),
        (Excepted("grid", "why", boards=("small",)), []),
        (Excepted("grid", "why", boards=("large",)), ["other", "what"]),
        (Excepted("grid", "why", panels=("Nodes",)), ["other"]),
        (Excepted("grid", "why", boards=("large",), panels=("Nodes",)), ["other", "what"]),
        (Excepted("ids", "why"), ["other", "what"]),
    ],
)
def test_an_exception_covers_its_rule_on_its_boards_and_panels(excepted: Excepted, kept: list[str]) -> None:
    left, used = without_excepted(problems(), "small", [excepted])

    assert [one.what for one in left] == kept
    assert [one.what for one in unused([excepted], used, "file")] == (
        [] if len(kept) < 2 else [f"the exception of {excepted.rule} for {_of(excepted)} covers nothing"]
    )


def _of(excepted: Excepted) -> str:
    return ", ".join([*excepted.boards, *excepted.panels]) or "all boards"


def test_those_of_the_suite_can_be_read_and_have_reasons() -> None:
    found = exceptions(EXCEPTIONS, rule_names())

    assert found
    assert all(len(one.reason.split()) >= 3 for one in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- rule: grids\n  reason: x", "unknown rule 'grids'"),
        ("- rule: grid", "missing required field `reason`"),
        ("- rule: grid\n  reason: ' '", "has no reason"),
        ("- rule: grid\n  reason: x\n  panel: y", "unknown field `panel`"),
        ("grid: x", "Expected `array`"),
        ("- [", "is not a list of exceptions"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "exceptions.yaml").write_text(text)

    with pytest.raises(TachoscopeError, match=f"exceptions.yaml.*{said}"):
        exceptions(tmp_path / "exceptions.yaml", rule_names())


def test_an_empty_file_excepts_nothing_and_a_missing_one_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").touch()

    assert exceptions(tmp_path / "empty.yaml", []) == ()
    with pytest.raises(TachoscopeError, match="cannot be read"):
        exceptions(tmp_path / "nowhere.yaml", [])


def test_rules_have_names_of_their_own() -> None:
    assert len(set(rule_names())) == len(rule_names()) == 17 + 5 + 5 + 5 + 1
