"""The agent as the watcher of jobs that no `tachoscope run` watches, with real segments on a clock of the test's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from making import envelope
from spool_writing import Process
from spooling import FakeClock, agent_of, pass_seconds, value
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store
from tachoscope_node.agent import Agent
from tachoscope_node.jobs.standin_launcher import RESTART_SECONDS
from test_agent import restarted


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def agent(tmp_path: Path, clock: FakeClock) -> Agent:
    return agent_of(tmp_path, clock=clock)


def start(tmp_path: Path, clock: FakeClock, rank: int = 0, attempt: int = 0) -> Process:
    process = Process(tmp_path / "spool" / "pod", rank=rank, world_size=2, attempt=attempt)
    process.clock = clock
    process.start()
    return process


def said(tmp_path: Path) -> list[records.Record]:
    """Return what was written from outside of the job, in its order."""
    store = Store(str(tmp_path / "store"))
    lines = [line for segment in store.segments("job") for line in store.read(segment).splitlines()]
    found = [record for record in map(records.decode, lines) if record.rank == records.LAUNCHER_RANK]
    return sorted(found, key=lambda record: (record.writer, record.seq))


def test_a_job_without_a_launcher_has_its_start_and_end_written_by_the_agent(
    tmp_path: Path, clock: FakeClock, agent: Agent
) -> None:
    ranks = [start(tmp_path, clock, rank) for rank in (0, 1)]
    for rank in ranks:
        rank.write(records.JobStarted, world_size=2, pid=0, process_time=rank.unix_clock() - 60.0)
    pass_seconds(agent, clock, 4)
    assert value(agent, "tachoscope_job_active", "job") == 1.0
    for rank in ranks:
        rank.step()
        rank.end()
    pass_seconds(agent, clock, 8)
    started, ended = said(tmp_path)

    assert isinstance(started, records.JobStarted)
    assert 55.0 < started.time - started.process_time < 70.0, "when the first process was started"
    assert isinstance(ended, records.JobEnded)
    assert ended.status == "completed"
    assert value(agent, "tachoscope_job_active", "job") == 0.0
    assert value(agent, "tachoscope_worker_failures_total", "job", "node-1") == 0
    assert list((tmp_path / "spool").iterdir()) == [], "its own segments are shipped and removed like any"


def test_a_job_with_a_launcher_is_left_to_it_also_when_both_end_unevenly(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    launcher = Process(tmp_path / "spool" / "run", rank=records.LAUNCHER_RANK)
    launcher.clock = clock
    launcher.start()
    rank = start(tmp_path, clock)
    pass_seconds(agent, clock, 5)
    launcher.end("failed")
    pass_seconds(agent, clock, 1)
    rank.spool.close()  # killed: that it is gone shows later than that the launcher ended
    pass_seconds(agent, clock, 6)

    assert {record.writer for record in said(tmp_path)} == {launcher.writer}
    assert value(agent, "tachoscope_job_active", "job") == 0.0


def test_a_restart_belongs_to_the_job_and_one_that_never_comes_ends_it_when_it_failed(
    tmp_path: Path, clock: FakeClock, agent: Agent
) -> None:
    for attempt in range(2):
        ranks = [start(tmp_path, clock, rank, attempt) for rank in (0, 1)]
        pass_seconds(agent, clock, 5)
        for rank in ranks:
            rank.step()
            rank.spool.close()
        pass_seconds(agent, clock, 5)
        assert value(agent, "tachoscope_job_active", "job") == 1.0
    for _ in range(3):  # long enough on the test's clock; Unix time is the host's, and the end is told by that
        agent.keeper._unix_clock = lambda before=agent.keeper._unix_clock: before() + RESTART_SECONDS / 2  # type: ignore[misc]
        pass_seconds(agent, clock, 3)
    pass_seconds(agent, clock, 4)
    found = said(tmp_path)
    failures = [record for record in found if isinstance(record, records.WorkerFailed)]

    assert sorted((f.failed_attempt, f.failed_rank, f.step) for f in failures) == [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1)]
    assert sum(isinstance(record, records.WorkerRestarted) for record in found) == 2
    assert isinstance(found[-1], records.JobEnded)
    assert found[-1].status == "failed"
    assert found[-1].time - max(f.gone_time for f in failures) == pytest.approx(0.0, abs=1e-3), "it ended when its last process did"
    assert value(agent, "tachoscope_job_active", "job") == 0.0
    assert value(agent, "tachoscope_restarts_total", "job") == 1


def test_an_agent_that_comes_later_goes_on_watching(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    rank = start(tmp_path, clock)
    rank.step()
    pass_seconds(agent, clock, 4)
    agent = restarted(agent, tmp_path, clock)
    pass_seconds(agent, clock, 4)
    rank.spool.close()
    pass_seconds(agent, clock, 4)
    failures = [record for record in said(tmp_path) if isinstance(record, records.WorkerFailed)]

    assert [(f.failed_rank, f.failed_writer, f.step) for f in failures] == [(0, rank.writer, 1)]


def test_a_stopped_agent_leaves_the_job_as_it_is(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    start(tmp_path, clock)
    pass_seconds(agent, clock, 4)
    agent.finish(clock() + 5.0)
    agent.close()

    assert [getattr(record, "status", "") for record in said(tmp_path)] == ["", "left"]


def test_a_hang_is_written_down_and_its_seconds_move_while_it_lasts(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    ranks = [start(tmp_path, clock, rank) for rank in (0, 1)]
    for _ in range(5):
        clock.now += 0.5
        for rank in ranks:
            rank.step(forward=0.5)
    shown = []
    for _ in range(10):
        for rank, phase in zip(ranks, ("backward", "data_wait"), strict=True):
            rank.write(records.Heartbeat, step=5, phase=phase)
        pass_seconds(agent, clock, 5)
        shown.append(value(agent, "tachoscope_time_seconds_total", "job", "1", "hung"))
    hangs = [record for record in said(tmp_path) if isinstance(record, records.WorkerHung)]

    assert [(hang.failed_rank, hang.why) for hang in hangs] == [(1, "it is in data_wait, the others wait")]
    assert shown[5] == 0.0
    assert shown[6:] == pytest.approx([34.5, 39.5, 44.5, 49.5])


def test_a_real_process_that_is_killed_is_told_before_its_segment_is_old(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    script = (
        "import sys, time; sys.path[:0] = sys.argv[2:]; from pathlib import Path; from spool_writing import Process; import os;"
        "p = Process(Path(sys.argv[1])); p.clock = lambda: 1000.0; p.start(os.getpid()); p.step(); print('ready', flush=True);"
        "time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "spool" / "pod"), *sys.path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    pass_seconds(agent, clock, 4)
    process.kill()
    process.wait()
    pass_seconds(agent, clock, 3)  # to write it, to read what was written, to ship it
    (failed,) = [record for record in said(tmp_path) if isinstance(record, records.WorkerFailed)]

    assert (failed.failed_pid, failed.step, failed.reason) == (process.pid, 1, "killed")


def test_what_claims_to_be_an_agents_word_of_a_job_does_not_make_it_watched(tmp_path: Path, agent: Agent) -> None:
    line = records.encode(records.JobStarted(**envelope(-1, job="job", writer="w"), world_size=0, pid=1)).rstrip()
    agent.live.apply("agent-forged", "w", "job", [line], 1000.0)

    assert value(agent, "tachoscope_job_active", "job") == 0.0
