"""What the agent knows of running jobs: ledgers that sum, and a foreign spool that cannot make it say anything."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest

from making import envelope
from tachoscope_core.metrics.training import TRAINING_STATES
from tachoscope_core.records import records
from tachoscope_node.config.settings import Limits
from tachoscope_node.jobs import metrics as live_families
from tachoscope_node.jobs.registry import JobRegistry, Rank
from tachoscope_service.metrics.family import Histogram
from trying import each


class Told:
    """Tells a `JobRegistry` what a rank's process would."""

    def __init__(
        self, live: JobRegistry, rank: int = 0, *, job: str = "job", directory: str = "run", attempt: int = 0, world: int = 2
    ) -> None:
        self.live, self.rank, self.job, self.directory, self.attempt = live, rank, job, directory, attempt
        self.writer = str(uuid.uuid4())
        self.now = 100.0
        self.steps = 0
        self.say(records.JobStarted, world_size=world, pid=1)

    def say(self, kind: type[records.Record], **fields: Any) -> None:
        who = envelope(self.rank, job=self.job, writer=self.writer, attempt=self.attempt, monotonic_ns=round(self.now * 1e9))
        line = records.encode(kind(**who, **fields))
        self.live.apply(self.directory, self.writer, self.job, [line.rstrip(b"\n")], self.now)

    def step(self, cpu: float | None = None, **phases: float) -> None:
        wall = sum(phases.values())
        self.now += wall
        self.steps += 1
        clocks = {} if cpu is None else {"cpu_seconds": {"backward": cpu}}
        self.say(records.StepDone, step=self.steps, wall_seconds=wall, phase_seconds=phases, **clocks)


def series(live: JobRegistry, now: float = 200.0) -> dict[tuple[str, ...], Any]:
    live.settle()
    return {
        (family.metric.name.removeprefix("tachoscope_"), *labels): point
        for family in live_families.families(live.jobs.values(), node="node-1", now=now)
        for labels, point in family.points
    }


def test_all_states_of_a_rank_are_there_at_zero_before_its_first_step() -> None:
    live = JobRegistry(Limits())
    Told(live)
    shown = series(live)

    assert shown["time_seconds_total", "job", "0", "checkpoint"] == 0.0
    assert shown["steps_total", "job", "0"] == 0.0
    assert shown["worker_failures_total", "job", "node-1"] == 0.0
    assert shown["step_seconds", "job"] == Histogram((0,) * 12, 0.0)
    assert ("checkpoint_age_seconds", "job") not in shown, "not known is not zero"


def test_time_outside_of_phases_is_a_pause_as_far_as_heartbeats_saw_one() -> None:
    live = JobRegistry(Limits())
    rank = Told(live, world=1)
    rank.step(forward=1.0, other=4.0)
    rank.say(records.Heartbeat, step=1, activity={"other": {"other sleep": 15, "other cpu": 5}})
    rank.step(forward=1.0, other=4.0)
    shown = series(live)

    assert shown["time_seconds_total", "job", "0", "host_wait"] == pytest.approx(3.0)
    assert shown["time_seconds_total", "job", "0", "unexplained"] == pytest.approx(4.0 + 1.0)


def test_states_of_a_rank_sum_to_its_time_from_launch_to_its_last_record() -> None:
    live = JobRegistry(Limits())
    launcher = envelope(-1, job="job", writer="w", monotonic_ns=round(90e9))
    line = records.encode(records.JobStarted(**launcher, world_size=0, pid=1)).rstrip()
    live.apply("run", "w", "job", [line], 90.0)
    rank = Told(live, world=1)
    for _ in range(10):
        rank.step(data_wait=0.1, forward=0.2, gc=0.05, checkpoint=0.1)
    rank.now += 3.0
    rank.say(records.JobEnded, status="left")

    assert sum(live.jobs["job"].ranks[0].seconds.values()) == pytest.approx(rank.now - 90.0)
    assert live.jobs["job"].ranks[0].seconds["initialisation"] == pytest.approx(10.0)
    assert live.jobs["job"].ranks[0].seconds["unexplained"] == pytest.approx(3.0)


def test_a_job_whose_launcher_lives_is_not_forgotten_before_its_first_step_and_is_after_its_end() -> None:
    live = JobRegistry(Limits())

    def launcher(kind: type[records.Record], **fields: Any) -> None:
        line = records.encode(kind(**envelope(-1, job="job", writer="w", monotonic_ns=round(90e9)), **fields)).rstrip()
        live.apply("run", "w", "job", [line], 90.0)

    launcher(records.JobStarted, world_size=0, pid=1)
    live.forget(10_000.0, 300.0)
    assert "job" in live.jobs
    rank = Told(live, world=1)
    rank.say(records.JobEnded, status="left")
    live.forget(10_000.0, 300.0)
    assert "job" in live.jobs
    launcher(records.JobEnded, status="completed")
    live.forget(10_000.0, 300.0)
    assert "job" not in live.jobs


def test_a_record_that_was_dropped_leaves_its_time_unexplained() -> None:
    live = JobRegistry(Limits())
    rank = Told(live, world=1)
    rank.step(forward=1.0)
    rank.now += 2.0
    rank.step(forward=1.0)

    assert live.jobs["job"].ranks[0].seconds["unexplained"] == pytest.approx(2.0)


def test_with_all_ranks_on_the_node_waiting_splits_into_transfer_and_waiting_for_the_late_one() -> None:
    live = JobRegistry(Limits())
    late, early = Told(live, 0), Told(live, 1)
    for _ in range(5):
        late.step(cpu=0.8, forward=0.0, backward=1.0)
        early.step(cpu=0.3, forward=0.0, backward=1.0)
    shown = series(live)

    assert shown["time_seconds_total", "job", "0", "communication"] == pytest.approx(1.0)
    assert shown["time_seconds_total", "job", "0", "straggler_wait"] == 0
    assert shown["time_seconds_total", "job", "1", "communication"] == pytest.approx(1.0)
    assert shown["time_seconds_total", "job", "1", "straggler_wait"] == pytest.approx(2.5)
    assert shown["slowdown_ratio", "job"] == pytest.approx(1.0 / 0.5)


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_rank_that_is_read_to_its_end_before_another_is_read_at_all_is_matched_step_by_step_all_the_same(attempt: int) -> None:
    live = JobRegistry(Limits())
    if attempt:  # one before it was killed at different steps of its ranks
        before = [Told(live, rank) for rank in (0, 1)]
        before[0].step(cpu=0.5, backward=1.0)
        for rank in before:
            live.writer_gone("job", rank.writer, 100.0)
        live.settle()
    for rank, cpu in ((0, 0.8), (1, 0.3)):
        told = Told(live, rank, attempt=attempt)
        told.say(records.CheckpointRestored, step=10 * attempt, blocking_seconds=0.0)
        for _ in range(1000):
            told.step(cpu=cpu, backward=1.0)
        told.say(records.JobEnded, status="left")

    assert series(live)["time_seconds_total", "job", "1", "straggler_wait"] == pytest.approx(500.0)
    assert live.jobs["job"].open_steps == {}


def test_a_rank_that_stands_still_leaves_a_bounded_number_of_steps_open() -> None:
    live = JobRegistry(Limits())
    Told(live, 1)
    going = Told(live, 0)
    for _ in range(5000):
        going.step(cpu=0.8, backward=1.0)
    assert len(live.jobs["job"].open_steps) <= 4096
    live.settle()

    assert len(live.jobs["job"].open_steps) <= 256


def test_with_ranks_elsewhere_waiting_is_communication_since_the_two_look_the_same() -> None:
    live = JobRegistry(Limits())
    ranks = [Told(live, 0, world=4), Told(live, 1, world=4)]
    for rank, cpu in zip(ranks, (0.8, 0.3), strict=True):
        rank.step(cpu=cpu, backward=1.0)
    shown = series(live)

    assert shown["time_seconds_total", "job", "1", "communication"] == pytest.approx(0.7)
    assert shown["time_seconds_total", "job", "1", "straggler_wait"] == 0


def test_a_single_rank_has_no_slowdown_rather_than_one_of_1() -> None:
    live = JobRegistry(Limits())
    Told(live, world=1).step(forward=1.0)

    assert ("slowdown_ratio", "job") not in series(live)


def test_steps_of_an_attempt_that_died_half_way_are_counted_and_not_mixed_with_the_next() -> None:
    live = JobRegistry(Limits())
    first, other = Told(live, 0), Told(live, 1)
    first.step(cpu=0.5, backward=1.0)
    live.writer_gone("job", first.writer, 101.0)
    live.writer_gone("job", other.writer, 101.0)
    again = [Told(live, rank, attempt=1) for rank in (0, 1)]
    for rank in again:
        rank.say(records.CheckpointRestored, step=10, blocking_seconds=0.0)
        rank.step(cpu=0.5, backward=1.0)
    shown = series(live)

    assert live.jobs["job"].open_steps == {}
    assert shown["steps_total", "job", "0"] == 2
    assert shown["worker_failures_total", "job", "node-1"] == 2
    assert sum(live.jobs["job"].ranks[0].seconds.values()) == pytest.approx(2.0)


def test_a_rank_that_left_in_order_has_no_heartbeat_age_and_one_that_was_killed_has() -> None:
    live = JobRegistry(Limits())
    left, killed = Told(live, 0), Told(live, 1)
    left.say(records.JobEnded, status="left")
    live.writer_gone("job", killed.writer, 130.0)
    shown = series(live, now=160.0)

    assert ("heartbeat_age_seconds", "job", "0") not in shown
    assert shown["heartbeat_age_seconds", "job", "1"] == pytest.approx(60.0)


def test_checkpoints_give_age_and_durations() -> None:
    live = JobRegistry(Limits())
    rank = Told(live)
    rank.say(records.CheckpointSaved, step=1, blocking_seconds=3.0, background_seconds=20.0)
    shown = series(live, now=160.0)

    assert shown["checkpoint_age_seconds", "job"] == pytest.approx(60.0)
    assert shown["checkpoint_blocking_seconds", "job"].sum == 3.0
    assert sum(shown["checkpoint_background_seconds", "job"].counts) == 1


def test_shards_beyond_the_first_twenty_share_one_series() -> None:
    live = JobRegistry(Limits())
    rank = Told(live)
    for number in range(100):
        rank.say(records.ShardFailed, shard=f"shard-{number}", error="gone")
    shards = {labels[2]: count for labels, count in series(live).items() if labels[0] == "shard_failures_total"}

    assert len(shards) == 21
    assert shards["other"] == 80


def test_ten_thousand_jobs_and_ranks_stay_within_the_limits() -> None:
    live = JobRegistry(Limits(jobs=8, ranks=16))
    for number in range(10_000):
        Told(live, rank=number % 1000, job=f"job-{number % 100}")

    assert len(live.jobs) == 8
    assert sum(len(job.ranks) for job in live.jobs.values()) == 16
    assert live.rejected["over_limit"] > 0
    assert len(series(live)) < 60 * 16 + 10 * 8


def test_a_record_that_names_another_job_or_writer_than_its_file_is_rejected() -> None:
    live = JobRegistry(Limits())
    rank = Told(live)
    rank.job, job = "other", "job"
    line = records.encode(records.WorkerFailed(**envelope(0, job="other", writer=rank.writer), reason="")).rstrip()
    live.apply("run", rank.writer, job, [line], 100.0)
    line = records.encode(records.WorkerFailed(**envelope(0, job=job, writer="another"), reason="")).rstrip()
    live.apply("run", rank.writer, job, [line], 100.0)

    assert live.rejected["identity"] == 2
    assert set(live.jobs) == {"job"}


def test_a_rank_cannot_be_taken_over_from_another_directory_while_it_lives() -> None:
    live = JobRegistry(Limits())
    true, forged = Told(live, directory="pod-a"), Told(live, directory="pod-b")
    forged.step(forward=1000.0)
    true.step(forward=1.0)

    assert live.rejected["identity"] == 2
    assert live.jobs["job"].ranks[0].steps == 1


@each("rank", [-2, 1 << 20, 1 << 40])
def test_a_rank_that_cannot_be_has_no_series(rank: int) -> None:
    live = JobRegistry(Limits())
    Told(live, rank=rank)

    assert live.rejected["implausible"] + live.rejected["malformed"] == 1
    assert not any(job.ranks for job in live.jobs.values())


def test_a_record_from_the_future_counts_as_of_now() -> None:
    live = JobRegistry(Limits())
    rank = Told(live)
    line = records.encode(records.Heartbeat(**envelope(0, job="job", writer=rank.writer, monotonic_ns=10**18), step=1)).rstrip()
    live.apply("run", rank.writer, "job", [line], 150.0)

    assert series(live, now=200.0)["heartbeat_age_seconds", "job", "0"] == 50.0


def test_the_time_of_a_job_is_that_of_its_ranks_together_also_of_those_that_ended() -> None:
    live = JobRegistry(Limits())
    ranks = [Told(live, rank) for rank in (0, 1)]
    for rank in ranks:
        rank.step(forward=1.0, data_wait=0.5)
    ranks[1].say(records.JobEnded, status="left")
    ranks[0].step(forward=2.0)
    Told(live, 0, job="other", world=1).step(forward=7.0)
    shown = series(live)

    for state in TRAINING_STATES:
        of_ranks = sum(shown["time_seconds_total", "job", rank, state] for rank in ("0", "1"))
        assert shown["job_time_seconds_total", "job", state] == pytest.approx(of_ranks)
    assert shown["job_time_seconds_total", "job", "compute"] == pytest.approx(4.0)
    assert shown["job_time_seconds_total", "other", "compute"] == pytest.approx(7.0)
    assert shown["job_effective_seconds_total", "job"] == pytest.approx(4.0), "waiting for data brings no step forward"
    assert shown["job_held_seconds_total", "job"] == pytest.approx(
        sum(shown["job_time_seconds_total", "job", state] for state in TRAINING_STATES)
    )


def test_compiling_is_a_state_of_its_own_and_what_is_compiled_again_is_counted_once() -> None:
    live = JobRegistry(Limits())
    told = Told(live, world=1)
    told.step(forward=1.0)
    told.step(forward=1.0, compile=20.0)
    for fields in (
        {"recompiled": False},
        {"recompiled": True, "reason": "0/0: n == 3"},
        {"recompiled": True, "backward": True},
        {"recompiled": True, "limit": "recompile_limit (8)"},
    ):
        told.say(records.CompilationDone, place="model.py:88 forward", **fields)
    shown = series(live)

    assert shown["time_seconds_total", "job", "0", "compile"] == pytest.approx(20.0)
    assert shown["time_seconds_total", "job", "0", "compute"] == pytest.approx(2.0)
    assert shown["recompilations_total", "job"] == 1.0


def test_a_rank_saved_by_a_version_that_knew_fewer_states_goes_on_with_all_of_them() -> None:
    rank = msgspec.json.decode(b'{"rank": 0, "writer": "w", "directory": "run", "seconds": {"compute": 5.0}}', type=Rank)

    assert rank.seconds == dict.fromkeys(TRAINING_STATES, 0.0) | {"compute": 5.0}
