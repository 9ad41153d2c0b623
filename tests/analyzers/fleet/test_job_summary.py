from __future__ import annotations

import datetime
from pathlib import Path

import msgspec
import pytest

import course_making
from life_making import NOW, T0, PlantedLife, killed_three_times
from making import envelope, job
from serving_making import BEGIN, Server
from tachoscope_analyzers.data.prices import RANK, Price
from tachoscope_analyzers.fleet import job_summary
from tachoscope_analyzers.fleet.job_summary import MOST_POINTS, JobSummary, standing, summarise
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records.load import JobRecords, from_spool
from tachoscope_core.records import records

PRICE = Price(
    name="a rank", pattern=RANK, per_hour=3.0, currency="USD", provider="us", date=datetime.date(2026, 1, 1), source="a test"
)


def loaded(lines: bytes, folder: Path) -> JobRecords:
    path = folder / course_making.SEGMENT
    path.write_bytes(lines)
    return from_spool([path])


def test_a_job_in_which_nothing_is_wrong_is_healthy_and_has_no_worst_finding(tmp_path: Path) -> None:
    summary = summarise(loaded(course_making.lines(), tmp_path), now=NOW)

    assert summary.kind == "training"
    assert summary.healthy
    assert summary.worst is None
    assert summary.reason == ""
    assert (summary.ranks, summary.steps, summary.attempts) == (4, 300, 1)
    assert summary.mean_step == pytest.approx(0.1, rel=0.05)


def test_the_worst_finding_names_the_class_and_the_rank_that_was_planted(tmp_path: Path) -> None:
    late = course_making.late(2, 1, 300, seconds=0.05)

    worst = summarise(loaded(course_making.lines(late), tmp_path), now=NOW).worst

    assert worst is not None
    assert (worst.class_, worst.severity, worst.ranks) == ("input_straggler", "critical", [2])
    assert worst.seconds_per_step == pytest.approx(0.05, rel=0.2)


def test_the_sparkline_has_few_points_and_keeps_the_mean(tmp_path: Path) -> None:
    summary = summarise(loaded(course_making.lines(course_making.slower(151, 0.1)), tmp_path), now=NOW)

    points = summary.step_seconds
    assert len(points) == MOST_POINTS
    assert sum(points) / len(points) == pytest.approx(summary.mean_step, rel=0.02)
    assert points[-1] == pytest.approx(points[0] + 0.1, rel=0.1)


def test_goodput_and_idle_time_are_those_of_the_whole_life_and_add_up(tmp_path: Path) -> None:
    life = killed_three_times()
    report = analyze_life(life.load(tmp_path), now=NOW, prices=[PRICE])

    summary = summarise(life.load(tmp_path), now=NOW, prices=[PRICE])

    assert summary.attempts == 4
    assert summary.goodput == report.goodput
    assert summary.goodput_last != summary.goodput
    assert summary.held_hours is not None
    assert summary.idle_hours is not None
    assert summary.goodput is not None
    assert summary.idle_hours == pytest.approx(summary.held_hours * (1 - summary.goodput))
    assert summary.idle_money == pytest.approx(summary.idle_hours * 3.0)
    assert (summary.currency, summary.unit) == ("USD", "rank")


def test_the_cost_of_idle_time_without_a_price_is_not_known_and_not_nothing(tmp_path: Path) -> None:
    summary = summarise(killed_three_times().load(tmp_path), now=NOW)

    assert summary.idle_hours
    assert summary.idle_money is None


def test_work_lost_over_the_life_is_the_worst_finding_where_it_costs_most(tmp_path: Path) -> None:
    life = PlantedLife()
    life.process(0, [1.0] * 60, start=0.0, begin=1.0, world=1)
    life.gone(0, 61.5)
    life.process(0, [1.0] * 70, attempt=1, start=62.0, begin=63.0, world=1, left=133.5)

    worst = summarise(life.load(tmp_path), now=NOW).worst

    assert worst is not None
    assert (worst.class_, worst.of_life, worst.ranks) == ("lost_work", True, [0])


def test_a_job_that_only_started_cannot_be_judged_and_says_why(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 5.0, code=1)

    summary = summarise(life.load(tmp_path), now=NOW)

    assert (summary.kind, summary.status) == ("other", "failed")
    assert not summary.healthy
    assert "no training step" in summary.reason
    assert summary.goodput is None
    assert summary.mean_step is None


def test_records_of_kinds_from_a_newer_version_are_passed_over(tmp_path: Path) -> None:
    strange = b'{"kind":"FromTheFuture","job":"planted","writer":"x","seq":1,"rank":0,"report":{"schema":99}}\n'

    summary = summarise(loaded(course_making.lines() + strange, tmp_path), now=NOW)

    assert summary.healthy


def test_an_analysis_that_fails_in_a_way_nobody_foresaw_is_a_line_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: JobRecords) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(job_summary, "analyze", broken)

    summary = summarise(loaded(course_making.lines(), tmp_path), now=NOW)

    assert not summary.healthy
    assert "ZeroDivisionError" in summary.reason
    assert summary.steps == 300


def test_a_job_that_ran_and_wrote_nothing_since_is_not_called_running_for_ever(tmp_path: Path) -> None:
    found = loaded(course_making.lines(), tmp_path)
    last = max(row.time for row in found.steps)
    summary = summarise(found, now=last + 10, written=last + 1)

    assert summary.status == "running"
    assert standing(summary, last + 20) == "running"
    assert standing(summary, last + 100) == "unknown"


@pytest.mark.bar  # of a thousand ranks test_rank_grid.py has an analysis
def test_a_thousand_ranks_are_summed_up(tmp_path: Path) -> None:
    steps = [[{"data_wait": 0.001, "forward": 0.03, "backward": 0.06}] * 1000] * 12

    summary = summarise(loaded(job(steps), tmp_path), now=NOW)

    assert summary.ranks == 1000
    assert len(summary.step_seconds) <= 12
    assert len(msgspec.json.encode(summary)) < 10_000


def test_a_summary_is_the_same_after_it_was_on_disk(tmp_path: Path) -> None:
    summary = summarise(killed_three_times().load(tmp_path), now=NOW, prices=[PRICE])

    assert msgspec.json.decode(msgspec.json.encode(summary), type=JobSummary) == summary


def test_a_service_has_requests_and_their_outcomes(tmp_path: Path) -> None:
    server = Server()
    server.start()
    for number in range(40):
        server.request(1.0 + number, prefill=0.2, gaps=(0.02,) * 10)
    server.refuse(42.0)
    server.end(50.0)

    summary = summarise(loaded(server.lines(), tmp_path), now=BEGIN + 100)

    assert (summary.kind, summary.status, summary.requests, summary.ranks) == ("service", "completed", 41, 1)
    assert summary.mean_step is None


def test_a_service_of_which_only_clients_tell_cannot_be_judged(tmp_path: Path) -> None:
    client = Server(role="client")
    client.start()
    client.request(1.0)

    summary = summarise(loaded(client.lines(), tmp_path), now=BEGIN + 100)

    assert (summary.kind, summary.requests, summary.healthy) == ("service", 1, False)
    assert "only clients" in summary.reason


def test_a_service_that_nobody_asked_says_so(tmp_path: Path) -> None:
    server = Server()
    server.start()

    summary = summarise(loaded(server.lines(), tmp_path), now=BEGIN + 100)

    assert "nothing was asked of it" in summary.reason


def test_a_job_without_any_start_of_a_process_still_has_its_line(tmp_path: Path) -> None:
    lines = records.encode(records.Heartbeat(**envelope(), step=0, window_seconds=5.0))

    summary = summarise(loaded(lines, tmp_path), now=T0)

    assert summary.kind == "other"
    assert summary.held_hours is None
    assert summary.reason
