"""A runbook in its parts: what a drill asks and runs of a page, and what it takes for healthy."""

from __future__ import annotations

import pytest

from tachoscope_cli.drill import run as drill_run
from tachoscope_cli.runbooks.pages import page_of
from tachoscope_cli.runbooks.parts import Command, Query, healthy, page_parts, queries_named_in
from tachoscope_core.errors import TachoscopeError
from tachoscope_show.text.runbook_pages import names
from trying import each

PAGE = """# Planted | page

## 1 Is it real?
```promql
# Q1 what hangs; healthy: no row
up{job="${job}"} == 0
# Q2 steps; healthy: above 0
rate(steps[5m])
```
```sh
tachoscope goodput "${job}"    # names the rank
curl -sS "http://${instance}/a" \\
  -H 'x: 1'    # from there
```
`tachoscope analyze` (section 1) names `rank`.

## 3 Stop it
1. (90 s) `kill -CONT "${pid}"`. Undo: `kill -STOP "${pid}"`.
2. Keep `host` out: `kubectl cordon "${host}"`.

## 4 Diagnose
| symptom | query | cause | step |
|---|---|---|---|
| state `D` | Q1 | the mount | `cat "/proc/${pid}/stack"` |

## 5 Verify
Q2 above 0 and Q11 gone.
## 6 Escalate
"""


def test_queries_and_commands_come_in_the_order_of_the_page_and_neither_undoing_nor_steps_for_other_causes_are_among_them() -> None:
    found = page_parts(PAGE)

    assert [(one.section, one.number, one.healthy) for one in found if isinstance(one, Query)] == [
        (1, 1, "no row"),
        (1, 2, "above 0"),
    ]
    assert [(one.section, one.text, one.comment) for one in found if isinstance(one, Command)] == [
        (1, 'tachoscope goodput "${job}"', "names the rank"),
        (1, "curl -sS \"http://${instance}/a\"   -H 'x: 1'", "from there"),
        (3, 'kill -CONT "${pid}"', ""),
        (3, 'kubectl cordon "${host}"', ""),
    ]
    assert queries_named_in(PAGE, 5) == {2, 11}


def test_a_command_runs_the_programs_at_the_head_of_each_of_its_parts() -> None:
    command = Command(4, "kubectl logs \"deployment/${service}\" | grep -iE 'error|abort; oom' | tail -2; df -h && ls")

    assert command.programs() == ["kubectl", "grep", "tail", "df", "ls"]


@pytest.mark.parametrize(
    ("words", "values", "found"),
    [
        ("no row", [], True),
        ("no row. Several: storage", [0.0], False),
        ("0", [0.0], True),
        ("0", [0.0, 2.0], False),
        ("below 15", [3.0, 14.9], True),
        ("below 15", [3.0, 15.0], False),
        ("below 0.01 on flash", [0.02], False),
        ("above 0, also if it continued by itself", [0.0], False),
        ("1 for each", [1.0, 1.0], True),
        ("above 0", [float("nan")], False),
        ("below 15", [], None),  # nobody measured it
        ("0 or a few that come and go", [0.0], None),
        ("below 0.1 % of all", [0.0], None),
        ("compute on top", [1.0], None),
    ],
)
def test_an_answer_is_held_against_the_pages_own_words_and_what_is_not_measured_is_not_healthy(
    words: str, values: list[float], found: bool | None
) -> None:
    assert healthy(words, [({}, value) for value in values]) is found


def test_a_query_without_its_words_is_refused_and_named() -> None:
    with pytest.raises(TachoscopeError, match="up == 0"):
        page_parts("## 1 Is it real?\n```promql\nup == 0\n```\n")


@each("name", names())
def test_every_page_can_be_taken_apart(name: str) -> None:
    assert all(one.programs() for one in page_parts(page_of(name)) if isinstance(one, Command))


@pytest.mark.parametrize("fault", drill_run.DRILLS)
def test_what_a_drill_expects_of_its_runbook_is_on_that_page(fault: str) -> None:
    drill = drill_run.DRILLS[fault]
    page, expected = page_of(drill.alert), drill.runbook
    queries = {one.number: one for one in page_parts(page) if isinstance(one, Query)}
    commands = [one.text for one in page_parts(page) if isinstance(one, Command)]
    numbers = {
        *expected.shows,
        *expected.has,
        *expected.means,
        *expected.either,
        *(number for number, _ in expected.takes.values()),
    }
    starts = [*expected.answers, *expected.last, *([expected.ends] if expected.ends else [])]

    assert numbers <= queries.keys()
    assert [start for start in starts if not any(text.startswith(start) for text in commands)] == []
    assert expected.shows, "a page of which nothing shows its own fault is of no use"
    assert queries_named_in(page, 5) & expected.shows, "section 5 has to name a query that showed the fault"
    judged = queries.keys() - expected.either.keys() - expected.has.keys()
    unread = [number for number in judged if not _can_be_read(expected.means.get(number, queries[number].healthy))]
    assert [number for number in unread if number in expected.shows] == []


def _can_be_read(words: str) -> bool:
    return healthy(words, [({}, 0.0)]) is not None
