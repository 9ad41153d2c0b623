"""Whose seconds by state a life has: the agents' where they counted all of it, the records' where they did not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from life_making import NOW, T0, PlantedLife, killed_three_times
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_core.report.report import Report
from tachoscope_core.storage.job_counters import NodeCounters

COUNTED = {"compute": 63.0, "communication": 20.0, "initialisation": 72.0, "restore": 8.0, "lost_work": 34.0, "unexplained": 3.0}
"""Of the 200 rank-seconds of the job that is killed three times: not what its records say."""


def counters(
    seconds: dict[str, float], ranks: Sequence[int] = (0, 1), node: str = "node-0", time: float = T0 + 101.0
) -> NodeCounters:
    return NodeCounters(node, int(T0), time, frozenset(ranks), seconds)


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., Report]:
    def report(*counted: NodeCounters, life: PlantedLife | None = None, **options: Any) -> Report:
        job = (life or killed_three_times()).load(tmp_path)
        return analyze_life(replace(job, counted=list(counted)), now=NOW, **options)

    return report


def ledger_of(report: Report) -> str:
    assert report.life is not None
    return report.life.ledger


def lacking(report: Report) -> list[str]:
    return [note.what for note in report.quality if note.what.startswith(("no agent counted", "agents counted"))]


def test_where_agents_counted_all_of_a_life_its_seconds_are_theirs_and_its_story_is_that_of_the_records(judged: Any) -> None:
    report, of_records = judged(counters(COUNTED)), judged()

    assert (ledger_of(report), ledger_of(of_records)) == ("agents", "records")
    assert report.ledgers[0].states == COUNTED
    assert report.goodput == 63.0 / 200.0
    assert report.life is not None and of_records.life is not None
    assert report.life.attempts == of_records.life.attempts
    assert report.life.recoveries == of_records.life.recoveries
    (lost,) = report.findings
    assert (lost.class_, lost.share) == ("lost_work", pytest.approx(34.0 / 200.0))
    assert all(one.small for one in of_records.findings)  # by the records it is too little for more


def test_what_an_agent_counted_before_it_forgot_the_job_and_since_adds_up(judged: Any) -> None:
    half = {state: seconds / 2 for state, seconds in COUNTED.items()}
    report = judged(counters(half), counters(half))

    assert ledger_of(report) == "agents"
    assert report.ledgers[0].states == pytest.approx(COUNTED)


def test_with_ranks_on_several_nodes_computing_and_waiting_have_the_agents_sum_and_the_records_split(judged: Any) -> None:
    half = {state: seconds / 2 for state, seconds in COUNTED.items()}
    report, of_records = judged(counters(half, [0]), counters(half, [1], "node-1")), judged().ledgers[0].states
    states, split = report.ledgers[0].states, ("compute", "communication", "straggler_wait")

    assert ledger_of(report) == "agents"
    assert {state: seconds for state, seconds in states.items() if state not in split} == pytest.approx(
        {state: seconds for state, seconds in COUNTED.items() if state not in split}
    )
    told = sum(of_records.get(state, 0.0) for state in split)
    for state in split:
        assert states.get(state, 0.0) == pytest.approx((63.0 + 20.0) * of_records.get(state, 0.0) / told)
    assert [note.what for note in report.quality if "several nodes" in note.what]


def test_a_rank_on_a_node_without_an_agent_is_named_and_the_records_count(judged: Any) -> None:
    report = judged(counters({"compute": 100.0}, [0]))

    assert ledger_of(report) == "records"
    assert report.ledgers[0].states == judged().ledgers[0].states
    assert lacking(report) == ["no agent counted the time of rank 1"]


@pytest.mark.parametrize("part", [0.9, 1.1])
def test_agents_that_counted_less_or_more_than_the_job_held_are_not_believed(judged: Any, part: float) -> None:
    report = judged(counters({state: seconds * part for state, seconds in COUNTED.items()}))

    assert ledger_of(report) == "records"
    assert lacking(report) == [f"agents counted {200 * part:.0f} of 200 rank-seconds"]


def test_what_only_a_plan_knows_is_not_in_the_agents_seconds_so_the_records_count(judged: Any) -> None:
    report = judged(counters(COUNTED), maintenance=[(T0 + 10.0, T0 + 20.0)])

    assert ledger_of(report) == "records"
    assert lacking(report) == []


def test_of_a_job_that_runs_agents_may_know_what_no_record_in_the_store_says_yet(tmp_path: Path) -> None:
    life = PlantedLife()
    for rank in range(2):
        life.process(rank, [1.0] * 60, begin=1.0)
    running = replace(life.load(tmp_path), counted=[counters({"compute": 2 * 240.0}, time=T0 + 241.0)])

    assert ledger_of(analyze_life(running, now=T0 + 250.0)) == "agents"
