"""Where objectives stand, on a terminal."""

from __future__ import annotations

import io
import re

import pytest
from msgspec.structs import replace
from rich.console import Console

from slo_report_making import BUDGET, OBJECTIVE, REPORT
from tachoscope_alerts.report.schema import SloReport
from tachoscope_show.slo import text as slo_text
from tachoscope_show.slo import words as slo_words


def printed(report: SloReport = REPORT, width: int = 140) -> str:
    out = io.StringIO()
    slo_text.text(report, Console(file=out, width=width, highlight=False, markup=False))
    return re.sub(r" +$", "", out.getvalue(), flags=re.MULTILINE)


def test_each_budget_has_a_row_with_its_state_and_a_bar_of_what_is_left() -> None:
    rows = printed().splitlines()
    assert rows[0].startswith("1 exhausted, 1 ok, 1 not measured; 1 page now, at ")
    (burning,) = [row for row in rows if row.startswith("burning, page")]
    assert re.search(r"inference-ttft-p99 chat m-8b +99 % +99.60 % +99.90 % +█{2}░{6} +25 % +20.5x in 1 h +100 %", burning)
    (exhausted,) = [row for row in rows if row.startswith("exhausted")]
    assert "░" * 8 in exhausted
    assert "-250 %" in exhausted
    states = [row.split()[0].rstrip(",") for row in rows[3:6]]
    assert states == ["exhausted", "burning", "ok"], "the worst first"


def test_below_stand_those_that_are_not_as_they_should_be_with_why_whose_and_who() -> None:
    text = printed()
    below = text[text.index("\n\ninference-ttft-p99 code") :]
    assert (
        "inference-ttft-p99 chat m-8b: 40 of 10,000 events were bad; inference-serving, runbooks/InferenceTimeToFirstTokenBurn.md"
        in below
    )
    assert "page: 20.5x in 1 h and 30.0x in 5 min, above 13.4x" in below
    assert "host gpu-7: 30 of 40 bad, 75 %" in below
    assert "job <b>&: 10 of 40 bad, 25 %" in below
    assert "not measured\n  training-recovery: no samples of x in the period" in below
    assert text.count("training-recovery") == 1
    assert "training-goodput" not in below
    assert below.rstrip().endswith(REPORT.notes[0])


def test_a_narrow_terminal_loses_nothing() -> None:
    narrow = printed(width=60)
    assert "…" not in narrow
    for objective in REPORT.objectives:
        for budget in objective.budgets:
            assert slo_words.name(objective, budget) in narrow
            assert budget.left is None or all(cell in narrow for cell in slo_words.cells(objective, budget))
    assert narrow[narrow.index("\n\ninference-ttft-p99 code m-8b:") :] in printed()


def test_without_any_measured_there_is_no_table() -> None:
    rows = printed(replace(REPORT, objectives=REPORT.objectives[2:], notes=[])).splitlines()
    assert rows[0].startswith("1 not measured; no alert now, at ")
    assert rows[1:] == ["", "not measured", "  training-recovery: no samples of x in the period"]


def test_offenders_of_other_series_than_the_budget_stand_below_a_title_that_says_so() -> None:
    one = replace(OBJECTIVE, budgets=[replace(REPORT.objectives[0].budgets[1], raw_offenders=True)])
    assert "worst of the last day, counted from raw series\n" in printed(replace(REPORT, objectives=[one]))
    assert "raw series" not in printed()


@pytest.mark.parametrize(("left", "full"), [(1.0, 8), (0.5, 4), (0.001, 1), (0.0, 0), (-3.0, 0), (1.2, 8)])
def test_a_bar_is_empty_only_when_nothing_is_left(left: float, full: int) -> None:
    assert slo_text.bar(left) == "█" * full + "░" * (8 - full)


def test_a_service_without_a_name_does_not_vanish() -> None:
    unnamed = replace(OBJECTIVE, budgets=[replace(BUDGET, labels={"service": "", "model": "m"})])
    assert "inference-ttft-p99 - m" in printed(replace(REPORT, objectives=[unnamed]))
