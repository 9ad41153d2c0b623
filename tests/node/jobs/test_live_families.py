"""What a fleet's rules read of a job: one series for all of its ranks on the node, and the same as the ranks' own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_core.metrics.training import RANK_STATES, STEP_DATA_WAIT
from tachoscope_core.records import records
from tachoscope_node import state_file as saved
from tachoscope_node.config.settings import Limits
from tachoscope_node.jobs.metrics import SILENT_SECONDS
from tachoscope_node.jobs.registry import JobRegistry
from tachoscope_service.metrics.family import Histogram
from test_live import Told, series


def ranks_of(live: JobRegistry, now: float, job: str = "job") -> dict[str, float]:
    """Return the ranks by state; empty where there is no point."""
    shown = series(live, now)
    return {state: shown["job_ranks", job, state] for state in RANK_STATES if ("job_ranks", job, state) in shown}


def data_waits(live: JobRegistry) -> Histogram:
    found = series(live)["step_data_wait_ratio", "job"]
    assert isinstance(found, Histogram)
    return found


def within(histogram: Histogram, bound: float) -> int:
    return sum(histogram.counts[: STEP_DATA_WAIT.buckets.index(bound) + 1])


# --- data waits ------------------------------------------------------------------------------------------------------------------


def test_each_step_of_each_rank_is_one_observation_of_its_share_of_data_wait() -> None:
    live = JobRegistry(Limits())
    first, second = Told(live, 0), Told(live, 1)
    assert sum(data_waits(live).counts) == 0, "it is there before the first step"
    for _ in range(3):
        first.step(forward=0.6, data_wait=0.4)
        second.step(forward=1.0)
    found = data_waits(live)

    assert sum(found.counts) == 6
    assert (within(found, 0.01), within(found, 0.35), within(found, 0.5)) == (3, 3, 6)
    assert found.sum == pytest.approx(1.2)


def test_steps_that_are_done_again_and_those_that_cannot_be_are_no_observations() -> None:
    live = JobRegistry(Limits())
    first = Told(live, world=1)
    for _ in range(4):
        first.step(forward=0.5, data_wait=0.5)
    first.say(records.CheckpointSaved, step=2, blocking_seconds=0.0, reference="ckpt-2")
    first.say(records.StepDone, step=5, wall_seconds=1.0, phase_seconds={"data_wait": 7.0})
    live.writer_gone("job", first.writer, first.now)
    again = Told(live, attempt=1, world=1)
    again.now = first.now
    again.say(records.CheckpointRestored, step=2, blocking_seconds=0.0, reference="ckpt-2")
    for _ in range(5):
        again.step(forward=1.0)

    assert series(live)["steps_total", "job", "0"] == 9
    assert sum(data_waits(live).counts) == 4 + 3, "two of the five were done before"
    assert live.rejected["implausible"] == 1


@given(st.lists(st.tuples(st.just(0.0) | st.floats(1e-6, 100.0), st.floats(0.0, 1.009)), max_size=20))
def test_a_share_is_never_beyond_all_of_the_step(steps: list[tuple[float, float]]) -> None:
    live = JobRegistry(Limits())
    told = Told(live, world=1)
    for number, (wall, share) in enumerate(steps):
        told.now += wall
        phases = {"data_wait": wall * share, "forward": wall * max(1.0 - share, 0.0)}
        told.say(records.StepDone, step=number + 1, wall_seconds=wall, phase_seconds=phases)
    found = data_waits(live)

    assert sum(found.counts) == len(steps)
    assert found.sum == pytest.approx(sum(min(share, 1.0) for wall, share in steps if wall > 0.0))


def test_the_counts_go_on_after_a_restart_and_begin_at_zero_with_the_state_of_an_agent_that_had_none(tmp_path: Path) -> None:
    live, file = JobRegistry(Limits()), tmp_path / "live.json"
    Told(live, world=1).step(forward=0.6, data_wait=0.4)
    saved.save(file, saved.AgentState("boot", live.jobs))
    assert data_waits(JobRegistry(Limits(), saved.load(file, "boot").jobs)) == data_waits(live)

    older = json.loads(file.read_text())
    del older["jobs"]["job"]["step_data_wait"]
    file.write_text(json.dumps(older))
    restarted = JobRegistry(Limits(), saved.load(file, "boot").jobs)
    assert data_waits(restarted) == Histogram((0,) * (len(STEP_DATA_WAIT.buckets) + 1), 0.0)
    assert series(restarted)["steps_total", "job", "0"] == 1


# --- ranks by what they do -------------------------------------------------------------------------------------------------------


def test_a_rank_works_until_it_says_nothing_for_a_minute_and_again_once_it_does() -> None:
    live = JobRegistry(Limits())
    silent, beating = Told(live, 0), Told(live, 1)
    silent.step(forward=1.0)
    for _ in range(20):
        beating.now += 5.0
        beating.say(records.Heartbeat, step=1)

    assert ranks_of(live, 101.0 + SILENT_SECONDS - 0.1) == {"working": 2.0, "silent": 0.0, "hung": 0.0}
    assert ranks_of(live, 101.0 + SILENT_SECONDS) == {"working": 1.0, "silent": 1.0, "hung": 0.0}
    silent.now = 200.0
    silent.say(records.Heartbeat, step=1)
    assert ranks_of(live, 200.0) == {"working": 2.0, "silent": 0.0, "hung": 0.0}


def test_a_rank_that_hangs_is_hung_whether_it_is_silent_or_not_until_its_next_step() -> None:
    live = JobRegistry(Limits(), hang_seconds=30.0)
    told = [Told(live, 0), Told(live, 1)]
    for _ in range(5):
        for rank in told:
            rank.step(forward=1.0)
    told[0].now = 200.0
    told[0].say(records.Heartbeat, step=5, phase="backward")
    live.stand_still(200.0)
    assert ranks_of(live, 200.0) == {"working": 0.0, "silent": 0.0, "hung": 2.0}

    told[0].step(backward=96.0)
    assert ranks_of(live, told[0].now) == {"working": 1.0, "silent": 0.0, "hung": 1.0}


def test_who_left_in_order_is_no_rank_any_more_and_a_job_without_ranks_has_no_points() -> None:
    live = JobRegistry(Limits())
    left, killed = Told(live, 0), Told(live, 1)
    Told(live, records.LAUNCHER_RANK, job="launched")
    assert ranks_of(live, 100.0, "launched") == {}
    left.say(records.JobEnded, status="left")
    live.writer_gone("job", killed.writer, 101.0)
    assert ranks_of(live, 110.0) == {"working": 1.0, "silent": 0.0, "hung": 0.0}
    assert ranks_of(live, 1000.0) == {"working": 0.0, "silent": 1.0, "hung": 0.0}
    Told(live, 1).say(records.JobEnded, status="left")

    assert ranks_of(live, 110.0) == {}


@given(
    st.lists(st.tuples(st.sampled_from(["", "left", "failed", "killed"]), st.floats(0.0, 300.0), st.floats(0.0, 9.0)), max_size=6)
)
def test_the_ranks_by_state_are_those_that_have_a_heartbeat_age(ranks: list[tuple[str, float, float]]) -> None:
    live = JobRegistry(Limits())
    for number, (ended, last_record, hung) in enumerate(ranks):
        Told(live, number)
        rank = live.jobs["job"].ranks[number]
        rank.ended, rank.last_record, rank.hung = ended, last_record, hung
    aged = {labels: age for labels, age in series(live, 300.0).items() if labels[0] == "heartbeat_age_seconds"}
    found = ranks_of(live, 300.0)

    assert sum(found.values()) == len(aged)
    assert found.get("silent", 0.0) <= sum(age >= SILENT_SECONDS for age in aged.values())
    assert set(found) == (set(RANK_STATES) if aged else set())


# --- dropped records -------------------------------------------------------------------------------------------------------------


def test_records_dropped_are_those_of_all_ranks_and_processes_of_the_job_and_never_go_back() -> None:
    live = JobRegistry(Limits())
    launcher = Told(live, records.LAUNCHER_RANK)
    seen = [series(live)["records_dropped_total", "job"]]
    for attempt in range(3):
        told = [Told(live, rank, attempt=attempt) for rank in (0, 1)]
        for dropped in (0, 2, 5):
            for rank in told:
                rank.say(records.Heartbeat, step=1, dropped_total=dropped)
                seen.append(series(live)["records_dropped_total", "job"])
        told[0].say(records.JobEnded, status="left", dropped_total=6)
        live.writer_gone("job", told[1].writer, 100.0)
        seen.append(series(live)["records_dropped_total", "job"])
    launcher.say(records.JobEnded, status="completed")
    live.forget(1e9, 300.0)

    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 3 * (5 + 6))
    assert ("records_dropped_total", "job") not in series(live)
