"""The watch from outside: who is gone, who was started again, who hangs, from records on a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest

from making import envelope
from tachoscope.supervisor.job_watch import JobEvent, JobWatch
from tachoscope_core.jobs.hang_rule import least_seconds
from tachoscope_core.records import records
from trying import each

UNIX = 1.7e9


class Told:
    """A watch that is told what the ranks of a job do. Its clock starts at 0; Unix time is `UNIX` later."""

    def __init__(self, ranks: int = 2, **settings: Any) -> None:
        self.watch = JobWatch(**settings)
        self.now = 0.0
        for rank in range(ranks):
            self.say(records.JobStarted, rank, world_size=ranks, pid=0)

    def say(self, kind: type[records.Record], rank: int, *, attempt: int = 0, **fields: Any) -> None:
        writer = f"writer-{rank}-{attempt}"
        who = envelope(rank, writer=writer, attempt=attempt, time=UNIX + self.now, monotonic_ns=round(self.now * 1e9))
        self.watch.add_record(kind(**who, **fields), self.now, UNIX + self.now)  # type: ignore[arg-type]

    def step(self, number: int, *ranks: int, seconds: float = 1.0, attempt: int = 0) -> None:
        for rank in ranks:
            self.say(records.StepDone, rank, attempt=attempt, step=number, wall_seconds=seconds, phase_seconds={"forward": seconds})

    def steps(self, count: int, *ranks: int, attempt: int = 0) -> None:
        for number in range(1, count + 1):
            self.now += 1.0
            self.step(number, *ranks, attempt=attempt)

    def beat(self, **phases: str) -> None:
        for rank, phase in phases.items():
            self.say(records.Heartbeat, int(rank[1:]), step=1, phase=phase)

    def stand(self, seconds: float, **phases: str) -> list[JobEvent]:
        """Let time pass with heartbeats every 5 s and a look a second; return what was judged."""
        events = []
        for second in range(round(seconds)):
            self.now += 1.0
            if second % 5 == 4:
                self.beat(**phases)
            events += self.watch.new_events(self.now)
        return events

    def gone(self, rank: int, attempt: int = 0) -> None:
        self.watch.add_exit(f"writer-{rank}-{attempt}", UNIX + self.now)


def test_a_process_that_is_gone_without_a_last_word_failed_and_the_first_that_went_is_named_first() -> None:
    told = Told(3)
    told.steps(4, 0, 1, 2)
    told.watch.mark_alive(UNIX + told.now)
    told.now += 0.3
    told.gone(2)
    told.gone(0)
    failures = told.watch.new_events(told.now)

    assert [event.fields["failed_rank"] for event in failures] == [2, 0]
    assert failures[0].kind is records.WorkerFailed
    assert failures[0].fields["reason"] == "killed"
    assert failures[0].fields["step"] == 4
    assert failures[0].fields["seen_time"] == UNIX + 4.0
    assert failures[0].fields["gone_time"] - UNIX == pytest.approx(4.3, abs=1e-3)
    assert told.watch.new_events(told.now + 1.0) == [], "each is told once"


@each(("status", "failures"), [("left", []), ("completed", []), ("failed", ["ValueError"])])
def test_a_process_that_said_how_it_ends_failed_only_if_it_said_so(status: str, failures: list[str]) -> None:
    told = Told(1)
    told.steps(2, 0)
    told.say(records.JobEnded, 0, status=status, reason="ValueError" if status == "failed" else "")
    told.gone(0)

    assert [event.fields["reason"] for event in told.watch.new_events(told.now)] == failures


def test_a_rank_of_a_higher_attempt_was_restarted_and_the_first_attempt_was_not() -> None:
    told = Told(2)
    told.steps(2, 0, 1)
    assert told.watch.new_events(told.now) == []
    for rank in (0, 1):
        told.gone(rank)
        told.say(records.JobStarted, rank, attempt=1, world_size=2, pid=0)
    restarted = [event.fields for event in told.watch.new_events(told.now) if event.kind is records.WorkerRestarted]

    assert restarted == [{"restarted_rank": rank, "restarted_attempt": 1} for rank in (0, 1)]


def test_a_reader_of_data_shards_is_no_process_whose_end_matters() -> None:
    told = Told(0)
    told.say(records.ShardRead, 0, shard="a.tar", bytes=1, seconds=1.0)
    told.gone(0)

    assert told.watch.new_events(told.now) == []


HANGS = [
    ({"r0": "backward", "r1": "data_wait"}, 1, "it is in data_wait, the others wait"),
    ({"r0": "optimizer", "r1": "collective"}, 0, "it is in optimizer, the others wait"),
    ({"r0": "backward", "r1": "other"}, 1, "it is in other, the others wait"),
    ({"r0": "backward", "r1": "collective"}, -1, "all ranks of this host wait"),
]


@each(("phases", "rank", "why"), HANGS)
def test_a_hang_is_told_once_with_the_rank_that_the_others_wait_for(phases: dict[str, str], rank: int, why: str) -> None:
    told = Told()
    told.steps(5, 0, 1)
    assert told.stand(29, **phases) == []
    (hang,) = told.stand(100, **phases)

    assert hang.kind is records.WorkerHung
    assert hang.fields.get("failed_rank", -1) == rank
    assert hang.fields["why"].startswith(why)
    assert (hang.fields["since_time"], hang.fields["step"]) == (UNIX + 5.0, 5)
    assert "no step for 31 s (a step takes 1 s)" in hang.text


@pytest.mark.parametrize("phases", [{"r0": "forward", "r1": "forward"}, {"r0": "data_wait", "r1": "optimizer"}])
def test_ranks_that_compile_or_wait_for_data_all_at_once_hang_only_after_ten_minutes(phases: dict[str, str]) -> None:
    told = Told()
    told.steps(5, 0, 1)
    assert told.stand(599, **phases) == []
    (hang,) = told.stand(10, **phases)

    assert hang.fields.get("failed_rank", -1) == -1
    assert hang.fields["why"] == "2 of 2 ranks do not wait"


def test_the_rank_that_finished_fewer_steps_is_the_one_that_hangs() -> None:
    told = Told()
    told.steps(5, 0, 1)
    told.now += 1.0
    told.step(6, 0)
    (hang,) = told.stand(40, r0="backward", r1="backward")

    assert hang.fields["failed_rank"] == 1
    assert hang.fields["why"] == "it finished 5 steps, the others 6"


def test_the_one_rank_that_went_on_from_a_collective_in_which_all_others_wait_is_named() -> None:
    told = Told(ranks=3)
    told.steps(5, 0, 1, 2)
    told.now += 1.0
    told.step(6, 1)
    (hang,) = told.stand(40, r0="collective", r1="backward", r2="collective")

    assert hang.fields["failed_rank"] == 1
    assert hang.fields["why"].startswith("it finished 6 steps; the others wait in a collective before that")


def test_the_last_stage_of_a_pipeline_which_ends_its_step_first_is_not_blamed_for_that() -> None:
    told = Told(ranks=3)
    told.steps(5, 0, 1, 2)
    told.now += 1.0
    told.step(6, 2)
    (hang,) = told.stand(40, r0="collective", r1="backward", r2="collective")

    assert "failed_rank" not in hang.fields


def test_a_rank_that_falls_silent_hangs_whatever_it_did_last() -> None:
    told = Told()
    told.steps(5, 0, 1)
    (hang,) = told.stand(40, r0="other")

    assert hang.fields["failed_rank"] == 1
    assert "wrote nothing for more than 15 s" in hang.fields["why"]


def test_ranks_that_wait_for_one_that_died_hang_because_of_it() -> None:
    told = Told()
    told.steps(5, 0, 1)
    told.gone(1)
    failed, hang = told.stand(40, r0="collective")

    assert (failed.kind, hang.kind) == (records.WorkerFailed, records.WorkerHung)
    assert hang.fields["failed_rank"] == 1
    assert hang.fields["why"] == "its process has ended"


@each(
    "phases",
    [
        {"r0": "checkpoint", "r1": "checkpoint"},
        {"r0": "evaluation", "r1": "evaluation"},
        {"r0": "checkpoint", "r1": "backward"},
        {"r0": "other", "r1": "other"},
    ],
)
def test_a_long_checkpoint_or_evaluation_or_work_outside_of_training_is_no_hang(phases: dict[str, str]) -> None:
    told = Told()
    told.steps(5, 0, 1)

    assert told.stand(600, **phases) == []


def test_before_the_first_step_nothing_hangs_and_long_steps_have_ten_times_their_length() -> None:
    told = Told()
    assert told.stand(1000, r0="forward", r1="forward") == []
    told.step(1, 0, 1, seconds=20.0)
    assert told.stand(200, r0="forward", r1="backward") == []

    assert len(told.stand(5, r0="forward", r1="backward")) == 1


def test_a_job_that_goes_on_says_so_and_may_hang_again() -> None:
    told = Told(1)
    told.steps(5, 0)
    assert len(told.stand(40, r0="collective")) == 1
    told.step(6, 0)
    (goes_on,) = told.watch.new_events(told.now)
    again = told.stand(40, r0="collective")

    assert (goes_on.kind, goes_on.text) == (None, "the job continues after 40 s without a step")
    assert [event.kind for event in again] == [records.WorkerHung]


@pytest.mark.parametrize(("given", "seconds"), [({}, 30.0), ({"TACHOSCOPE_HANG_SECONDS": "2.5"}, 2.5)])
@pytest.mark.parametrize("nonsense", ["", "-1", "nan", "inf", "soon"])
def test_the_time_to_a_hang_can_be_set_and_nonsense_is_the_default(given: dict[str, str], seconds: float, nonsense: str) -> None:
    assert least_seconds(given) == seconds
    assert least_seconds({"TACHOSCOPE_HANG_SECONDS": nonsense}) == 30.0


class AllStill:
    """Says of every process that it does nothing, and sleeps for so long from the last step."""

    def __init__(self, sleeps_seconds: float) -> None:
        self._sleeps_until = 40.0 + sleeps_seconds

    def stands_still(self, pid: int, now: float, until: float) -> bool:
        return True

    def waits_for_itself(self, pid: int, now: float, until: float) -> bool:
        return self._sleeps_until > until

    def stopped_worker(self, pid: int, now: float) -> str:
        return ""

    def forget(self) -> None: ...


@pytest.mark.parametrize(
    ("world", "phase", "sleeps_seconds", "seconds"),
    [
        pytest.param(2, "forward", 0, 11, id="all ranks are here"),
        pytest.param(4, "forward", 0, 31, id="others are on another host"),
        pytest.param(2, "data_wait", 31, 11, id="it sleeps beyond the whole limit"),
        pytest.param(2, "other", 29, 31, id="it may go on before the whole limit"),
    ],
)
def test_a_known_job_hangs_after_ten_seconds_where_all_ranks_are_seen_and_none_can_go_on_before_the_whole_limit(
    world: int, phase: str, sleeps_seconds: int, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    monkeypatch.setattr(told.watch, "_movement", AllStill(sleeps_seconds))
    monkeypatch.setattr(told.watch.exits, "pid_of", lambda writer: 1)
    for rank in (0, 1):
        told.say(records.JobStarted, rank, world_size=world, pid=0)
    told.steps(40, 0, 1)
    assert told.stand(seconds - 1, r0="backward", r1=phase) == []
    (hang,) = told.stand(1, r0="backward", r1=phase)

    assert hang.fields["failed_rank"] == 1
