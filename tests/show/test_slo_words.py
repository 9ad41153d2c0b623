"""Numbers of a report as people read them: never better than they are."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from slo_report_making import BUDGET, OBJECTIVE, REPORT
from tachoscope_alerts.report.schema import Burn, Offender
from tachoscope_show.slo import words as slo_words


@pytest.mark.parametrize(
    ("value", "target", "text"),
    [
        (0.99996, 0.999, "99.996 %"),
        (0.9999999, 0.999, "99.999 %"),
        (1.0, 0.999, "100.000 %"),
        (0.98765, 0.99, "98.76 %"),
        (0.95, 0.95, "95.00 %"),
        (0.9, 0.9, "90.0 %"),
        (0.999, 0.999, "99.900 %"),
        (0.0, 0.99, "0.00 %"),
        (None, 0.99, "-"),
    ],
)
def test_a_ratio_has_the_digits_that_its_budget_needs_and_is_100_only_if_nothing_was_bad(
    value: float | None, target: float, text: str
) -> None:
    assert slo_words.ratio(value, replace(OBJECTIVE, target=target)) == text


def test_the_headline_counts_the_worst_states_first_and_what_tells_somebody_now() -> None:
    fast = replace(BUDGET.burns[0], fires=True)
    burning = replace(OBJECTIVE, budgets=[replace(BUDGET, state="burning", burns=[replace(fast, severity="ticket")])])
    gone = replace(OBJECTIVE, budgets=[replace(BUDGET, state="exhausted", burns=[replace(fast, severity="ticket"), fast])])
    unknown = replace(OBJECTIVE, budgets=[replace(BUDGET, state="not_measured", left=None, burns=[])])
    made = replace(REPORT, objectives=[OBJECTIVE, burning, unknown, unknown])
    assert slo_words.headline(made) == "1 burning, 1 ok, 2 not measured; 1 ticket now, at 2023-11-15 00:00 UTC, from store"
    with_page = slo_words.headline(replace(made, objectives=[*made.objectives, gone]))
    assert with_page.startswith("1 exhausted, 1 burning, 1 ok, 2 not measured; 1 page, 1 ticket now, at "), "an exhausted one pages"
    assert slo_words.headline(replace(made, objectives=[OBJECTIVE])).startswith("1 ok; no alert now, at ")
    assert slo_words.headline(replace(REPORT, objectives=[])).startswith("no objectives at ")


def test_budgets_stand_worst_first_those_that_page_before_those_that_do_not() -> None:
    page = replace(BUDGET.burns[0], fires=True)
    some = {
        "fine": BUDGET,
        "deeper": replace(BUDGET, state="exhausted", left=-9.0),
        "gone": replace(BUDGET, state="exhausted", left=-1.0),
        "burns": replace(BUDGET, state="burning", burns=[page]),
        "pages": replace(BUDGET, state="exhausted", left=-0.1, burns=[page]),
    }
    made = replace(REPORT, objectives=[replace(OBJECTIVE, name=name, budgets=[one]) for name, one in some.items()])
    assert [objective.name for objective, _ in slo_words.measured(made)] == ["pages", "deeper", "gone", "burns", "fine"]


def test_what_was_not_measured_is_told_once_a_reason() -> None:
    unknown = replace(BUDGET, state="not_measured", left=None, why="no samples")
    names = {"a": unknown, "b": replace(unknown, why="no job ran"), "c": unknown, "d": BUDGET}
    made = replace(REPORT, objectives=[replace(OBJECTIVE, name=name, budgets=[one]) for name, one in names.items()])
    assert slo_words.unmeasured(made) == [("a, c", "no samples"), ("b", "no job ran")]


def test_a_budget_of_hardly_any_of_its_period_is_noted_as_little() -> None:
    young = replace(OBJECTIVE, budgets=[replace(BUDGET, coverage=40 / 28 / 86400)])
    told = slo_words.notes(replace(REPORT, objectives=[young, replace(OBJECTIVE, name="old")]))
    assert told == ["only 40.0 s of 28 d are measured: not yet meaningful are the budgets of inference-ttft-p99", *REPORT.notes]
    assert slo_words.notes(replace(REPORT, objectives=[OBJECTIVE])) == REPORT.notes


def test_what_is_measured_of_the_period_is_cut_and_a_stop_is_told() -> None:
    assert slo_words.coverage(replace(BUDGET, coverage=0.999)) == "99 %"
    assert slo_words.coverage(replace(BUDGET, coverage=1.0)) == "100 %"
    assert slo_words.coverage(replace(BUDGET, coverage=0.5, recent=False)) == "50 %, not in the last hour"
    assert slo_words.coverage(replace(BUDGET, coverage=0.0, recent=False)) == "0 %"
    assert slo_words.has_few_events(replace(BUDGET, coverage=0.5))
    assert slo_words.has_few_events(replace(BUDGET, recent=False))
    assert not slo_words.has_few_events(BUDGET)


def test_an_overdrawn_budget_is_negative_and_a_hopeless_one_a_factor() -> None:
    texts = {0.343: "34 %", 0.0: "0 %", -0.5: "-50 %", -25.0: "-25x", None: "-"}
    assert {left: slo_words.budget_left(replace(BUDGET, left=left)) for left in texts} == texts


def test_the_burn_that_is_shown_is_of_the_tier_that_fires_or_else_the_shortest_with_events() -> None:
    def burn(long: float | None, hours: float, *, fires: bool = False) -> Burn:
        return Burn(
            severity="page", long_seconds=hours * 3600, short_seconds=hours * 300, threshold=5.6, long=long, short=8.0, fires=fires
        )

    shown = [burn(2.0, 1), burn(7.04, 6, fires=True)]

    def fastest(burns: list[Burn], days: float = 28.0) -> str:
        return slo_words.fastest(replace(OBJECTIVE, period_days=days), replace(BUDGET, burns=burns))

    assert fastest(shown) == "7.0x in 6 h"
    assert fastest([burn(None, 1), burn(0.5, 6)]) == "0.5x in 6 h"
    assert fastest([burn(None, 1)]) == "-"
    assert fastest(shown, days=1 / 24) == "2.0x in 1 h", "a report on an hour shows no six hours as if they were in it"
    assert slo_words.fires(shown[1], OBJECTIVE) == "page: 7.0x in 6 h and 8.0x in 30 min, above 5.6x"
    assert slo_words.fires(shown[1], replace(OBJECTIVE, period_days=1 / 24)).endswith("(looks back further than this report)")


def test_amounts_are_events_or_lengths_of_time() -> None:
    assert slo_words.spent(OBJECTIVE, replace(BUDGET, bad=1234.4, total=50000.0)) == "1,234 of 50,000 events were bad"
    seconds = replace(OBJECTIVE, unit="seconds")
    assert slo_words.spent(seconds, replace(BUDGET, bad=90.0, total=7200.0)) == "1 min 30 s of 2 h were bad"
    ranks = replace(seconds, summed_over="ranks")
    assert slo_words.spent(ranks, replace(BUDGET, bad=90.0, total=7200.0)) == "1 min 30 s of 2 h were bad, summed over ranks"
    assert slo_words.spent(OBJECTIVE, replace(BUDGET, bad=8.19, total=21.0)) == "about 8 of 21 events were bad"
    assert slo_words.spent(OBJECTIVE, replace(BUDGET, bad=0.0, total=21.0)) == "0 of 21 events were bad"
    assert slo_words.spent(OBJECTIVE, replace(BUDGET, bad=0.2, total=21.0)) == "< 1 of 21 events were bad", "never as none"
    worst = Offender(kind="job", value="llama", bad=5400.0, of=7200.0, share=0.75)
    assert slo_words.offender(worst, seconds) == "job llama: 1 h 30 min of 2 h bad, 75 %"
    assert slo_words.offender(replace(worst, bad=0.25, of=1.0), OBJECTIVE) == "job llama: < 1 of 1 bad, 75 %"
    assert slo_words.offenders_title(OBJECTIVE, BUDGET) == "worst of the last day"
    assert slo_words.offenders_title(replace(OBJECTIVE, period_days=1 / 24), BUDGET) == "worst of the last 1 h"
