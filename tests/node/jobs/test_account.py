"""Time around steps by ledger state, from planted lives of a rank on a clock of the test's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from making import envelope
from tachoscope_core.records import records
from tachoscope_node.config.settings import Limits
from tachoscope_node.jobs.registry import JobRegistry, Rank
from test_live import Told, series


def rank_of(live: JobRegistry, rank: int = 0) -> Rank:
    return live.jobs["job"].ranks[rank]


def launch(live: JobRegistry, at: float) -> None:
    fields = envelope(-1, job="job", writer="launcher", monotonic_ns=round(at * 1e9))
    live.apply("run", "launcher", "job", [records.encode(records.JobStarted(**fields, world_size=0, pid=1)).rstrip()], at)


def command_ends(live: JobRegistry, at: float) -> None:
    fields = envelope(-1, job="job", writer="launcher", monotonic_ns=round(at * 1e9), seq=1)
    live.apply("run", "launcher", "job", [records.encode(records.JobEnded(**fields, status="completed")).rstrip()], at)


def kill(live: JobRegistry, told: Told) -> None:
    live.writer_gone("job", told.writer, told.now)


def again(live: JobRegistry, before: Told, *, attempt: int, after_seconds: float = 0.0) -> Told:
    """Return the rank's next process, which announces itself so long after the one before ended."""
    told = Told(JobRegistry(Limits()), before.rank, world=1)
    told.live, told.attempt, told.now = live, attempt, before.now + after_seconds
    told.say(records.JobStarted, world_size=1, pid=2)
    return told


def test_a_restart_is_initialisation_from_the_end_of_the_process_before_and_restore_apart_from_it() -> None:
    live = JobRegistry(Limits())
    launch(live, 90.0)
    first = Told(live, world=1)
    first.step(forward=1.0)
    first.say(records.CheckpointSaved, step=1, blocking_seconds=0.0, reference="a.pt")
    kill(live, first)
    second = again(live, first, attempt=1, after_seconds=7.0)
    second.now += 3.0
    second.say(records.CheckpointRestored, blocking_seconds=2.0, reference="a.pt")
    second.now += 4.0
    second.step(forward=1.0)
    seconds = rank_of(live).seconds

    assert seconds["initialisation"] == pytest.approx(10.0 + 7.0 + 1.0 + 4.0)
    assert seconds["restore"] == pytest.approx(2.0)
    assert sum(seconds.values()) == pytest.approx(second.now - 90.0)


@pytest.mark.parametrize("read_first", ["rank", "command"])
def test_a_rank_is_held_until_its_command_ends_whichever_end_is_read_first(read_first: str) -> None:
    live = JobRegistry(Limits())
    launch(live, 100.0)
    told = Told(live, world=1)
    told.step(forward=1.0)
    end = told.now
    if read_first == "command":
        command_ends(live, end + 3.0)
    told.say(records.JobEnded, status="completed")
    if read_first == "rank":
        command_ends(live, end + 3.0)
    seconds = rank_of(live).seconds

    assert seconds["unexplained"] == pytest.approx(3.0)
    assert sum(seconds.values()) == pytest.approx(end + 3.0 - 100.0)


def test_without_a_launcher_initialisation_begins_with_the_process() -> None:
    live = JobRegistry(Limits())
    told = Told(live, world=1)
    told.say(records.JobStarted, world_size=1, pid=1, process_time=envelope(0)["time"] - 12.0)
    told.step(forward=1.0)

    assert rank_of(live).seconds["initialisation"] == pytest.approx(12.0)


def test_steps_done_before_are_lost_work_and_recovery_ends_with_the_first_new_one() -> None:
    live = JobRegistry(Limits())
    launch(live, 100.0)
    first = Told(live, world=1)
    for number in range(1, 11):
        first.step(forward=1.0)
        if number == 6:
            first.say(records.CheckpointSaved, step=6, blocking_seconds=0.0, reference="six.pt")
    first.now += 0.4  # in the midst of a step
    first.say(records.Heartbeat, step=10, phase="forward")
    kill(live, first)
    second = again(live, first, attempt=1, after_seconds=50.0)
    second.say(records.CheckpointRestored, blocking_seconds=0.0, reference="six.pt")
    for _ in range(7):
        second.step(forward=1.0)
    shown, seconds = series(live), rank_of(live).seconds

    assert seconds["lost_work"] == pytest.approx(4.0 + 0.4)
    assert seconds["compute"] == pytest.approx(10.0 + 3.0)
    assert shown["restarts_total", "job"] == 1
    assert shown["recovery_seconds", "job"].sum == pytest.approx(50.0 + 5.0)
    assert shown["recovery_seconds", "job"].counts[1] == 1
    assert sum(seconds.values()) == pytest.approx(second.now - 100.0)


def test_a_third_attempt_counts_steps_on_from_what_the_second_restored_and_saved() -> None:
    live = JobRegistry(Limits())
    told = Told(live, world=1)
    for attempt in range(3):
        if attempt:
            kill(live, told)
            told = again(live, told, attempt=attempt)
            told.say(records.CheckpointRestored, blocking_seconds=0.0, reference="latest.pt")
        for _ in range(4):
            told.step(forward=1.0)
        told.say(records.CheckpointSaved, step=4, blocking_seconds=0.0, reference="latest.pt")
        told.step(forward=1.0)

    assert rank_of(live).reached == 4 + 4 + 5
    assert rank_of(live).seconds["lost_work"] == pytest.approx(2.0), "the fifth step of each attempt was not saved"


def test_a_job_that_begins_anew_does_all_steps_again() -> None:
    live = JobRegistry(Limits())
    first = Told(live, world=1)
    for _ in range(3):
        first.step(forward=1.0)
    kill(live, first)
    second = again(live, first, attempt=1)
    for _ in range(5):
        second.step(forward=1.0)

    assert rank_of(live).seconds["lost_work"] == pytest.approx(3.0)


@pytest.mark.parametrize("reference", ["unknown.pt", ""])
def test_where_a_node_cannot_know_which_step_was_restored_no_work_counts_as_lost(reference: str) -> None:
    live = JobRegistry(Limits())
    first = Told(live, world=1)
    first.step(forward=1.0)
    kill(live, first)
    second = again(live, first, attempt=1)
    second.say(records.CheckpointRestored, blocking_seconds=0.0, reference=reference)
    second.step(forward=1.0)

    assert rank_of(live).seconds["lost_work"] == 0.0
    assert rank_of(live).seconds["compute"] == pytest.approx(2.0)


def test_with_ranks_elsewhere_no_restore_seen_is_not_none_done() -> None:
    live = JobRegistry(Limits())
    first = Told(live, world=8)
    first.step(forward=1.0)
    kill(live, first)
    second = again(live, first, attempt=1)
    second.say(records.JobStarted, world_size=8, pid=1)
    second.step(forward=1.0)

    assert rank_of(live).seconds["lost_work"] == 0.0


def test_a_hang_is_counted_while_it_lasts_and_not_again_when_the_late_step_comes() -> None:
    live = JobRegistry(Limits())
    told = Told(live, world=1)
    for _ in range(5):
        told.step(forward=1.0)
    counted = []
    for seconds in range(60):
        live.stand_still(told.now + seconds)
        counted.append(rank_of(live).seconds["hung"])
    told.step(forward=60.0)
    after = rank_of(live).seconds["hung"]

    assert counted[30] == 0.0
    assert counted[31:] == pytest.approx([seconds - 1.0 for seconds in range(31, 60)])
    assert after == pytest.approx(59.0)
    assert rank_of(live).seconds["compute"] == pytest.approx(6.0)
    assert sum(rank_of(live).seconds.values()) == pytest.approx(65.0)


def test_a_hang_that_is_read_afterwards_counts_the_same() -> None:
    live = JobRegistry(Limits())
    told = Told(live, world=1)
    for _ in range(5):
        told.step(forward=1.0)
    told.step(forward=60.0)

    assert rank_of(live).seconds["hung"] == pytest.approx(59.0)


def test_a_hang_that_ends_in_death_is_hung_and_the_failure_is_when_it_began() -> None:
    live = JobRegistry(Limits())
    launch(live, 100.0)
    told = Told(live, world=1)
    for _ in range(5):
        told.step(forward=1.0)
    live.stand_still(told.now + 40.0)
    live.writer_gone("job", told.writer, told.now + 40.0)
    told.now += 40.0
    second = again(live, told, attempt=1, after_seconds=5.0)
    second.say(records.CheckpointRestored, step=5, blocking_seconds=0.0)
    second.step(forward=1.0)

    assert rank_of(live).seconds["hung"] == pytest.approx(39.0)
    assert live.jobs["job"].recovery.sum == pytest.approx(40.0 + 5.0 + 1.0)
    assert rank_of(live).seconds["lost_work"] == 0.0


@pytest.mark.parametrize("phase", ["checkpoint", "evaluation"])
def test_a_rank_that_saves_or_evaluates_does_not_hang_nor_does_the_one_that_waits_for_it(phase: str) -> None:
    live = JobRegistry(Limits())
    busy, waits = Told(live, 0), Told(live, 1)
    for _ in range(5):
        busy.step(forward=1.0)
        waits.step(forward=1.0)
    for _ in range(20):
        for rank, where in ((busy, phase), (waits, "backward")):
            rank.now += 5.0
            rank.say(records.Heartbeat, step=5, phase=where)
        live.stand_still(busy.now)
    for rank, where in ((busy, phase), (waits, "backward")):
        rank.now -= 100.0
        rank.step(**{where: 101.0})

    assert [rank_of(live, rank).seconds["hung"] for rank in (0, 1)] == [0.0, 0.0]
    assert rank_of(live, 0).seconds[phase] == pytest.approx(101.0)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["step", "late", "save", "restore", "beat", "look", "kill", "fail", "leave", "lost"]),
        st.floats(0.01, 100.0),
    ),
    max_size=40,
)


@given(EVENTS)
def test_whatever_happens_in_whichever_order_the_states_add_up_to_the_wall_time(events: list[tuple[str, float]]) -> None:
    live = JobRegistry(Limits())
    launch(live, 100.0)
    told, attempt, last_look, ended = Told(live, world=1), 0, 0.0, False
    for what, seconds in events:
        if ended:
            told, attempt, ended = again(live, told, attempt=attempt + 1, after_seconds=seconds), attempt + 1, False
        if what == "step":
            told.step(forward=seconds / 100, data_wait=seconds / 200)
        elif what == "late":
            for part in range(5):
                last_look = max(last_look, told.now + seconds * part / 5)
                live.stand_still(told.now + seconds * part / 5)
            told.step(forward=seconds, checkpoint=seconds / 7)
        elif what == "lost":  # a step that was dropped
            told.now += seconds
            told.steps += 1
        elif what == "save":
            told.say(records.CheckpointSaved, step=told.steps, blocking_seconds=0.0, reference="x")
        elif what == "restore":
            told.now += seconds
            told.say(records.CheckpointRestored, blocking_seconds=seconds / 2, reference="x")
        elif what == "beat":
            told.now += seconds
            told.say(records.Heartbeat, step=told.steps, phase="forward")
        elif what == "look":
            last_look = max(last_look, told.now + seconds)
            live.stand_still(told.now + seconds)
            told.now += seconds
            told.say(records.Heartbeat, step=told.steps, phase="")
        else:
            ended = True
            if what == "kill":
                told.say(records.Heartbeat, step=told.steps, phase="")
                kill(live, told)
            else:
                told.say(records.JobEnded, status="failed" if what == "fail" else "left")
    if not ended:
        told.say(records.JobEnded, status="left")

    seconds_by_state = rank_of(live).seconds
    assert min(seconds_by_state.values()) >= 0.0
    assert sum(seconds_by_state.values()) == pytest.approx(told.now - 100.0, abs=1e-3)
