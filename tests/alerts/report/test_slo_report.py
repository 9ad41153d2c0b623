"""Where objectives stand, from sums that are known: budgets, burns, states, offenders, and never healthy without events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest

from slo_making import ACTIVE, ACTIVITY, AGE, BAD, BEGIN, GOOD, LATENCY, USE, slo
from tachoscope_alerts.measure.events import Ask, EventSums, Measured, Window
from tachoscope_alerts.report.report import BINS, report
from tachoscope_alerts.report.schema import Budget, SloReport, dump
from tachoscope_alerts.spec.burn_rate_windows import DAY, HOUR, Timing
from tachoscope_alerts.spec.slo import Ratio, Selector, Slo

NOW = BEGIN + 28 * DAY
INTERVAL = 30.0
Course = Callable[[float], tuple[float, float] | None]
"""Bad and total events a second at so many seconds before now; None: not measured."""


class Planned:
    """A source that knows the course of each group, hour by hour."""

    def __init__(
        self,
        courses: dict[tuple[str, ...], Course],
        offenders: dict[str, dict[tuple[str, ...], float]] | None = None,
        *,
        instance: Literal["host", "instance"] = "host",
        raw: Iterable[str] = (),
    ) -> None:
        self.name = "planned"
        self.notes = ["a note"]
        self.instance: Literal["host", "instance"] = instance
        self.raw_only_bad = set(raw)
        self.asks: list[Ask] = []
        self._courses = courses
        self._offenders = offenders or {}

    def measure(self, asks: Sequence[Ask], timing: Timing) -> list[Measured]:
        self.asks = list(asks)
        return [self._answer(ask) for ask in asks]

    def _answer(self, ask: Ask) -> Measured:
        if ask.only_bad:
            return {group: [EventSums(bad=bad)] for group, bad in self._offenders.get(ask.slo.by[-1], {}).items()}
        return {group: [_summed(course, window) for window in ask.windows] for group, course in self._courses.items()}


def _summed(course: Course, window: Window) -> EventSums:
    found, step = EventSums(), 300.0  # ten evaluations at once
    for number in range(round((window.end - window.start) / step)):
        rates = course(NOW - window.end + number * step)
        if rates is not None:
            found += EventSums(rates[0] * 10, rates[1] * 10, 10)
    return found


def judged(course: Course, **more: Any) -> Budget:
    made = report([slo(LATENCY, **more)], Planned({(): course}), NOW)
    ((budget,),) = [one.budgets for one in made.objectives]
    return budget


def steady(ratio: float, total: float = 10.0) -> Course:
    return lambda ago: (ratio * total, total)


def test_attainment_is_the_ratio_of_good_events_and_the_budget_what_is_left_of_those_that_may_be_bad() -> None:
    budget = judged(steady(0.004))
    assert (budget.attainment, budget.attainment_day) == pytest.approx((0.996, 0.996))
    assert budget.left == pytest.approx(0.6)
    assert (budget.state, budget.coverage, budget.recent) == ("ok", 1.0, True)
    assert (budget.bad, budget.total) == pytest.approx((0.04 * 28 * DAY, 10 * 28 * DAY))


def test_a_busy_day_weighs_more_than_quiet_weeks() -> None:
    budget = judged(lambda ago: (10.0, 100.0) if ago < DAY else (0.0, 1.0))
    assert budget.attainment == pytest.approx(1 - 10 / 127)
    assert budget.attainment_day == pytest.approx(0.9)


def test_without_events_nothing_is_known_to_be_met() -> None:
    missing, idle = judged(lambda ago: None), judged(lambda ago: (0.0, 0.0))
    assert (missing.state, missing.coverage, missing.attainment, missing.left) == ("not_measured", 0.0, None, None)
    assert missing.why == "no samples of tachoscope_request_first_token_seconds in the period"
    assert (idle.state, idle.why, idle.coverage) == ("not_measured", "no events in the period", 1.0)
    (objective,) = report([slo(BAD)], Planned({}), NOW).objectives
    assert (objective.state, objective.budgets[0].why) == ("not_measured", "no samples of tachoscope_requests_total in the period")


def test_of_jobs_that_nobody_counted_it_is_told_who_would_have() -> None:
    jobs = Ratio(Selector("tachoscope_jobs_finished_total"), bad=Selector("tachoscope_jobs_finished_total", {"cause": ("infra",)}))
    ((budget,),) = [one.budgets for one in report([slo(jobs)], Planned({(): lambda ago: (0.0, 0.0)}), NOW).objectives]
    assert budget.why.startswith(
        "no events in the period: an attempt is counted up to 30 s after its end, by an agent that still runs"
    )


def test_what_was_measured_of_the_period_is_told_and_that_it_stopped() -> None:
    budget = judged(lambda ago: (0.0, 1.0) if 7 * DAY <= ago < 14 * DAY else None)
    assert (budget.state, budget.attainment, budget.coverage, budget.recent) == ("ok", 1.0, pytest.approx(0.25), False)
    assert budget.attainment_day is None
    assert [point.measured for point in budget.burn_down].count(True) == 7


def test_a_budget_is_exhausted_when_as_much_was_bad_as_may_be() -> None:
    assert judged(steady(0.009)).state == "ok"
    assert judged(steady(0.0101)).state == "exhausted"
    assert judged(steady(0.02)).left == pytest.approx(-1.0)


def burns(budget: Budget) -> dict[float, bool]:
    return {burn.long_seconds / HOUR: burn.fires for burn in budget.burns}


def test_a_tier_fires_when_both_its_windows_burn_faster_than_its_factor() -> None:
    # 13.44 times the budget of 1 %, for the last hour: 2 % of the budget in an hour.
    fast = judged(lambda ago: (0.14 if ago < HOUR else 0.0, 1.0))
    assert burns(fast) == {1: True, 6: False, 24: False, 72: False}
    assert fast.state == "burning"
    (first, *_) = fast.burns
    assert first.severity == "page"
    assert (first.threshold, first.long, first.short) == pytest.approx((13.44, 14.0, 14.0))
    slower = judged(lambda ago: (0.13 if ago < HOUR else 0.0, 1.0))
    assert burns(slower)[1] is False
    over = judged(lambda ago: (0.0 if ago < HOUR / 12 else 0.2 if ago < 2 * HOUR else 0.0, 1.0))
    assert burns(over)[1] is False, "it has stopped"


def test_few_bad_events_and_short_histories_fire_nothing() -> None:
    def rare(ago: float) -> tuple[float, float]:
        return (1 / 3600 if ago < HOUR else 0.0, 3 / 3600)

    assert burns(judged(rare))[1] is True
    assert burns(judged(rare, least_bad_events=5.0))[1] is False

    def young(ago: float) -> tuple[float, float] | None:
        return (1.0, 1.0) if ago < 5 * HOUR else None

    assert burns(judged(young)) == {1: True, 6: True, 24: False, 72: False}, "tickets need a quarter of their window"
    held = {burn.long_seconds / HOUR: burn.held for burn in judged(young, least_bad_events=1e6).burns}
    assert held[1] == "needs 1e+06 bad events"
    assert held[24] == "needs 6h of history, has 5h and needs 1e+06 bad events"
    assert {burn.held for burn in judged(steady(0.0)).burns} == {""}, "nothing held back what was not above"


def test_an_objective_that_never_pages_has_tickets_only() -> None:
    assert [burn.severity for burn in judged(steady(0.0), pages=False).burns] == ["ticket", "ticket"]


def test_the_burn_down_begins_whole_never_rises_and_ends_at_what_is_left() -> None:
    budget = judged(lambda ago: (0.1 if 3 * DAY <= ago < 5 * DAY else 0.0, 1.0))
    left = [point.left for point in budget.burn_down]
    assert (len(left), left[0], left[-1]) == (BINS + 1, 1.0, pytest.approx(budget.left))
    assert left == sorted(left, reverse=True)
    assert left[23] == 1.0
    assert left[24] == pytest.approx((1 + left[25]) / 2)
    assert left[25] == pytest.approx(budget.left)
    assert budget.burn_down[0].time == NOW - 28 * DAY


def test_offenders_are_the_worst_of_the_last_day_by_each_label_that_the_metric_has() -> None:
    counted = {("chat", f"n{number}"): float(number) for number in range(1, 9)} | {("code", "n9"): 100.0, ("chat", ""): 4.0}
    source = Planned({("chat",): steady(0.001), ("code",): steady(0.02)}, {"instance": counted})
    (objective,) = report([slo(LATENCY, by=("service",))], source, NOW).objectives

    assert [budget.labels for budget in objective.budgets] == [{"service": "code"}, {"service": "chat"}], "the worst state first"
    chat = objective.budgets[1].offenders
    assert [(one.kind, one.value) for one in chat] == [("host", f"n{number}") for number in (8, 7, 6, 5, 4)]
    assert (chat[0].bad, chat[0].of, chat[0].share) == pytest.approx((8 * INTERVAL, 40 * INTERVAL, 8 / 40))
    (further,) = source.asks[1:]
    assert (further.slo.by, further.windows) == (("service", "instance"), (Window(NOW - DAY, NOW),))


def test_each_share_is_of_what_was_counted_together_with_it_and_other_series_are_told() -> None:
    """What rules recorded may hold less than the raw series: no share is of a whole that it was not counted in."""
    counted = {("j-1",): 60.0, ("j-2",): 20.0}
    known = Planned(
        {(): steady(0.0001)}, {"training_job": counted, "instance": {("10.0.0.1:9",): 70.0}}, instance="instance", raw=["planted"]
    )
    ((budget,),) = [one.budgets for one in report([slo(ACTIVITY)], known, NOW).objectives]

    assert budget.raw_offenders
    assert [(one.kind, one.value, one.share) for one in budget.offenders] == [
        ("job", "j-1", 0.75),
        ("job", "j-2", 0.25),
        ("instance", "10.0.0.1:9", 1.0),
    ]
    assert all(one.share == one.bad / one.of for one in budget.offenders)
    assert not judged(steady(0.02)).raw_offenders


def test_a_report_on_an_hour_shows_nothing_of_a_day() -> None:
    source = Planned({(): steady(0.02)}, {"instance": {("n1",): 1.0}})
    ((budget,),) = [one.budgets for one in report([slo(LATENCY)], source, NOW, period_days=1 / 24).objectives]
    assert budget.attainment_day is None
    assert {window for ask in source.asks if ask.only_bad for window in ask.windows} == {Window(NOW - HOUR, NOW)}


@pytest.mark.parametrize(
    ("indicator", "by", "labels"),
    [
        (BAD, (), ["service", "instance"]),
        (GOOD, ("service",), ["instance"]),
        (ACTIVITY, (), ["training_job", "instance"]),
        (AGE, (), ["training_job"]),
        (USE, (), []),
        (replace(USE, by=("gpu", "instance"), gate=ACTIVE, missing="ignored"), (), ["instance"]),
        (replace(USE, by=("training_job", "instance"), gate=ACTIVE, missing="bad"), (), ["training_job"]),
        (
            Ratio(Selector("tachoscope_steps_total"), bad=Selector("tachoscope_shard_failures_total")),
            (),
            ["training_job", "instance", "shard"],
        ),
        (Ratio(Selector("tachoscope_steps_total"), bad=Selector("tachoscope_worker_failures_total")), (), ["training_job", "host"]),
        (Ratio(Selector("vllm:x"), good=Selector("vllm:y")), (), ["instance"]),
    ],
)
def test_bad_events_are_told_apart_only_by_labels_that_all_that_is_counted_has(
    indicator: Any, by: tuple[str, ...], labels: list[str]
) -> None:
    source = Planned({})
    report([slo(indicator, by=by)], source, NOW)
    assert [ask.slo.by[-1] for ask in source.asks[1:]] == labels


def test_amounts_are_seconds_where_time_is_counted() -> None:
    def unit(one: Slo) -> str:
        return report([one], Planned({}), NOW).objectives[0].unit

    seconds = Ratio(
        Selector("tachoscope_time_seconds_total"), good=Selector("tachoscope_time_seconds_total", {"state": ("compute",)})
    )
    counted = [unit(slo(one)) for one in (BAD, LATENCY, ACTIVITY, AGE, seconds)]
    assert counted == ["events", "events", "events", "seconds", "seconds"]
    made = report([slo(one) for one in (seconds, AGE, USE, BAD)], Planned({}), NOW).objectives
    assert [one.summed_over for one in made] == ["ranks", "jobs", "GPUs", ""]


def test_windows_end_at_the_last_evaluation_and_shrink_with_the_drill() -> None:
    source = Planned({})
    report([slo(LATENCY)], source, NOW + 17.0)
    assert {window.end for window in source.asks[0].windows if window.start >= NOW - DAY} == {NOW}

    report([slo(LATENCY)], source, NOW, timing=Timing(interval=1.0, scale=0.01))
    lengths = sorted({round(window.end - window.start) for window in source.asks[0].windows})
    assert lengths[0] == 3, "5 minutes are 3 s"
    assert lengths[-1] == round(0.28 * DAY)


def test_no_objectives_make_an_empty_report() -> None:
    assert report([], Planned({}), NOW).objectives == []


def test_the_document_is_the_report_and_can_be_read_back() -> None:
    made = report([slo(LATENCY), slo(BAD, name="other")], Planned({(): steady(0.2)}), NOW)
    document = dump(made)
    assert msgspec.json.decode(document, type=SloReport) == made
    assert msgspec.json.decode(document)["schema"] == 1
    assert made.notes == ["a note"]


def test_a_report_on_less_time_judges_its_budget_and_burns_by_the_same_tiers() -> None:
    def course(ago: float) -> tuple[float, float]:
        return (0.1 if ago < DAY else 0.5, 1.0)

    ((budget,),) = [one.budgets for one in report([slo(LATENCY)], Planned({(): course}), NOW, period_days=1.0).objectives]

    assert (budget.attainment, budget.left) == pytest.approx((0.9, -9.0))
    assert [burn.threshold for burn in budget.burns] == pytest.approx([13.44, 5.6, 2.8, 1.0])
    assert (budget.burn_down[0].time, budget.coverage) == (NOW - DAY, 1.0)


@pytest.mark.parametrize(
    ("indicator", "why"),
    [
        (USE, "no samples of tachoscope_gpu_active_ratio in the period"),
        (AGE, "no job ran for over 30m in the period, by tachoscope_job_active"),
        (replace(AGE, gate=ACTIVE), "no job ran in the period, by tachoscope_job_active"),
        (
            replace(AGE, gate=replace(ACTIVE, selector=Selector("queue_open"), since_seconds=60.0)),
            "queue_open was 1 for over 1m at no time of the period",
        ),
        (
            replace(AGE, missing="ignored"),
            f"no samples of {AGE.value.metric} while tachoscope_job_active was 1 for over 30m in the period",
        ),
    ],
)
def test_of_slices_it_is_told_which_of_value_and_gate_is_missing(indicator: Any, why: str) -> None:
    assert report([slo(indicator)], Planned({}), NOW).objectives[0].budgets[0].why == why
