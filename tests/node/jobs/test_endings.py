"""How attempts of jobs are counted when they end: once, and with no cause that is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from making import envelope
from spool_writing import Process
from spooling import FakeClock, agent_of, pass_seconds
from tachoscope.preemption.notice_file import Notice
from tachoscope_core.records import records
from tachoscope_node.agent import Agent
from tachoscope_node.config.settings import Limits
from tachoscope_node.jobs.attempt_outcome import WAIT_SECONDS
from tachoscope_node.jobs.registry import JobRegistry
from tachoscope_node.jobs.standin_launcher import RESTART_SECONDS
from test_agent import restarted
from test_live import Told


class Launcher:
    """Tells a `JobRegistry` what `tachoscope run` would."""

    def __init__(self, live: JobRegistry, writer: str = "launcher") -> None:
        self.live, self.writer = live, writer
        self.say(records.JobStarted, world_size=0, pid=1)

    def say(self, kind: type[records.Record], **fields: Any) -> None:
        line = records.encode(kind(**envelope(-1, job="job", writer=self.writer, monotonic_ns=round(100e9)), **fields))
        self.live.apply("run", self.writer, "job", [line.rstrip(b"\n")], 100.0)

    def failed(self, rank: int, reason: str, attempt: int = 0) -> None:
        self.say(records.WorkerFailed, reason=reason, failed_rank=rank, failed_attempt=attempt)

    def end(self, status: str = "failed", reason: str = "exit code 1") -> None:
        self.say(records.JobEnded, status=status, reason=reason if status == "failed" else "")


def counted(live: JobRegistry, at: float = 100.0 + WAIT_SECONDS, *, by_host: bool = False) -> dict[str, int]:
    live.count_ends(at, lambda _: by_host)
    counts = live.finished.counts
    return {f"{result} {cause}": count for result, causes in counts.items() for cause, count in causes.items() if count}


def ran(*ranks: int, world: int = 2) -> tuple[JobRegistry, Launcher]:
    """Return a job whose processes on this node ended: who launched it has not said yet how."""
    live = JobRegistry(Limits())
    launcher = Launcher(live)
    for rank in ranks or (0, 1):
        told = Told(live, rank, world=world)
        told.step(forward=1.0)
        told.say(records.JobEnded, status="left")
    return live, launcher


def test_every_result_and_cause_is_there_at_zero() -> None:
    assert sum(len(causes) for causes in JobRegistry(Limits()).finished.counts.values()) == 7
    assert counted(JobRegistry(Limits())) == {}


def test_a_job_counts_once_on_the_node_of_rank_0_and_on_no_other() -> None:
    for ranks, count in (((0, 1), {"completed none": 1}), ((2, 3), {})):
        live, launcher = ran(*ranks, world=4)
        launcher.end("completed")

        assert counted(live) == count
        assert counted(live, 1000.0) == count, "once"


def test_a_launcher_of_which_no_process_recorded_anything_is_no_job() -> None:
    live = JobRegistry(Limits())
    Launcher(live).end()

    assert counted(live) == {}


def test_nothing_is_counted_before_all_processes_are_gone() -> None:
    live = JobRegistry(Limits())
    launcher, rank = Launcher(live), Told(live, world=1)
    launcher.end("completed")
    assert counted(live) == {}
    live.writer_gone("job", rank.writer, 101.0)

    assert counted(live) == {"completed none": 1}


@pytest.mark.parametrize(
    ("reason", "world", "cause"),
    [
        pytest.param("TypeError", 2, "user", id="an error that only code raises"),
        pytest.param("TypeError", 4, "unknown", id="the same, while ranks elsewhere may have failed before"),
        pytest.param("RuntimeError", 2, "unknown", id="what torch raises for a bug, a device and a network"),
        pytest.param("ConnectionResetError", 2, "unknown", id="an error of a connection"),
        pytest.param("killed", 2, "unknown", id="killed, perhaps out of memory"),
    ],
)
def test_a_failure_is_the_user_s_only_where_nothing_else_can_be(reason: str, world: int, cause: str) -> None:
    live, launcher = ran(world=world)
    launcher.failed(1, reason)
    launcher.end()

    assert counted(live) == {f"failed {cause}": 1}


def test_the_first_failure_is_the_cause_and_not_what_followed_it() -> None:
    live, launcher = ran()
    launcher.failed(1, "killed")
    launcher.failed(0, "TypeError")
    launcher.end()

    assert counted(live) == {"failed unknown": 1}


def test_the_failure_of_an_attempt_that_was_restarted_is_not_that_of_the_last_one() -> None:
    live, launcher = ran()
    launcher.failed(1, "TypeError")
    for rank in (0, 1):
        Told(live, rank, attempt=1).say(records.JobEnded, status="left")
    launcher.end()

    assert counted(live) == {"failed unknown": 1}


def test_a_host_at_fault_is_the_cause_where_none_is_known_and_of_nothing_that_went_well() -> None:
    for status, reason, found in (
        ("failed", "killed", {"failed infra": 1}),
        ("failed", "TypeError", {"failed user": 1}),
        ("completed", "", {"completed none": 1}),
    ):
        live, launcher = ran()
        if reason:
            launcher.failed(0, reason)
        launcher.end(status)

        assert counted(live, 100.0, by_host=True) == found, "at once"


def test_a_failure_waits_for_what_the_kernel_log_may_still_tell() -> None:
    live, launcher = ran()
    launcher.end()

    assert counted(live, 100.0 + WAIT_SECONDS - 1.0) == {}
    assert counted(live, 100.0 + WAIT_SECONDS - 0.5, by_host=True) == {"failed infra": 1}


def test_who_is_interrupted_or_told_to_end_is_cancelled() -> None:
    live, launcher = ran()
    launcher.end("failed", f"{records.INTERRUPTED} (exit code 130)")
    assert counted(live) == {"cancelled user": 1}

    live, launcher = ran()
    launcher.say(records.PreemptionNotice, source="sigterm")
    launcher.end("failed", "killed by SIGTERM")
    assert counted(live) == {"cancelled unknown": 1}
    live, launcher = ran()
    launcher.say(records.PreemptionNotice, source="sigterm")
    launcher.end("completed")
    assert counted(live, by_host=True) == {"cancelled infra": 1}


def test_one_that_saved_and_ended_by_itself_after_a_notice_did_not_complete() -> None:
    live = JobRegistry(Limits())
    launcher, rank = Launcher(live), Told(live, world=1)
    rank.say(records.CheckpointSaved, step=1, blocking_seconds=0.1, after_notice=True)
    rank.say(records.JobEnded, status="left")
    launcher.end("completed")

    assert counted(live) == {"cancelled unknown": 1}


def test_a_launcher_that_was_killed_with_its_command_leaves_a_failure() -> None:
    live = JobRegistry(Limits())
    launcher, rank = Launcher(live), Told(live, world=1)
    live.writer_gone("job", launcher.writer, 101.0)
    live.writer_gone("job", rank.writer, 101.0)

    assert counted(live, 101.0 + WAIT_SECONDS) == {"failed unknown": 1}


def test_each_launch_counts_also_when_the_next_one_is_read_in_the_same_look() -> None:
    live, launcher = ran()
    launcher.end()
    again = Launcher(live, "again")
    for rank in (0, 1):
        Told(live, rank, attempt=1).say(records.JobEnded, status="left")
    again.end("completed")

    assert counted(live) == {"failed unknown": 1, "completed none": 1}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def shown(agent: Agent) -> dict[tuple[str, ...], Any]:
    (family,) = [family for family in agent.families() if family.metric.name == "tachoscope_jobs_finished_total"]
    return {labels: value for labels, value in family.points if value}


def started(tmp_path: Path, clock: FakeClock, attempt: int = 0) -> Process:
    process = Process(tmp_path / "spool" / "pod", attempt=attempt)
    process.clock = clock
    process.start()
    process.step()
    return process


def test_a_job_without_a_launcher_counts_when_the_agent_says_that_it_ended(tmp_path: Path, clock: FakeClock) -> None:
    agent = agent_of(tmp_path, clock=clock)
    for attempt in range(2):  # killed, started again, and killed: one end
        process = started(tmp_path, clock, attempt)
        pass_seconds(agent, clock, 5)
        process.spool.close()
        pass_seconds(agent, clock, 5)
    assert shown(agent) == {}
    for _ in range(3):
        agent.keeper._unix_clock = lambda before=agent.keeper._unix_clock: before() + RESTART_SECONDS / 2  # type: ignore[misc]
        pass_seconds(agent, clock, 3)
    pass_seconds(agent, clock, round(WAIT_SECONDS) + 1)
    assert shown(agent) == {("failed", "unknown"): 1.0}

    process = started(tmp_path, clock, 2)
    pass_seconds(agent, clock, 5)
    process.end()
    pass_seconds(agent, clock, 5)
    assert shown(agent) == {("failed", "unknown"): 1.0, ("completed", "none"): 1.0}


def test_a_restarted_agent_goes_on_counting_and_counts_what_ended_meanwhile(tmp_path: Path, clock: FakeClock) -> None:
    agent = agent_of(tmp_path, clock=clock)
    for attempt in range(2):
        process = started(tmp_path, clock, attempt)
        pass_seconds(agent, clock, 5)
        process.end()
        if attempt == 0:
            pass_seconds(agent, clock, 5)
        agent = restarted(agent, tmp_path, clock)
        pass_seconds(agent, clock, 5)

    assert shown(agent) == {("completed", "none"): 2.0}


def test_a_provider_s_notice_is_the_node_s_word(tmp_path: Path, clock: FakeClock) -> None:
    class Said:
        current = Notice("aws", 1.7e9, 1.7e9 + 120.0)

        def close(self) -> None:
            pass

    agent = agent_of(tmp_path, clock=clock)
    launcher = Process(tmp_path / "spool" / "pod", rank=records.LAUNCHER_RANK)
    launcher.clock = clock
    launcher.start()
    process = started(tmp_path, clock)
    pass_seconds(agent, clock, 3)
    agent.collecting.preemption = Said()  # type: ignore[assignment]
    process.spool.close()
    launcher.end("failed")
    pass_seconds(agent, clock, 5)

    assert shown(agent) == {("failed", "infra"): 1.0}
    agent.close()
