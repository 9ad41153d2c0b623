"""What objectives need of the exporter: counters that are there at 0 first, entities that do not vanish, slices of a silent job,
all through a real agent.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from test_live_services import Written

from serving_making import Server
from spool_writing import Process
from spooling import FakeClock, agent_of, pass_seconds, value
from tachoscope_core.metrics.training import ENDS, INTEGRITY_KINDS, STEP_SLOWDOWN
from tachoscope_core.records import records
from tachoscope_node.agent import Agent
from tachoscope_node.jobs.step_baseline import LEAST_STEPS
from tachoscope_service.metrics.family import Histogram

SCRAPE_SECONDS = 15


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def agent(tmp_path: Path, clock: FakeClock) -> Agent:
    return agent_of(tmp_path, clock=clock)


class Scraped:
    """An agent's samples as a scraper sees them every 15 s, and increases as Prometheus reckons them, without extrapolation."""

    def __init__(self, agent: Agent, clock: FakeClock) -> None:
        self.agent, self.clock = agent, clock
        self.samples: dict[tuple[str, ...], list[float]] = defaultdict(list)

    def go_on(self, seconds: int) -> None:
        for _ in range(seconds // SCRAPE_SECONDS):
            pass_seconds(self.agent, self.clock, SCRAPE_SECONDS)
            self.look()

    def look(self) -> None:
        for family in self.agent.families():
            for labels, point in family.points:
                seen = sum(point.counts) if isinstance(point, Histogram) else point
                self.samples[family.metric.name.removeprefix("tachoscope_"), *labels].append(seen)

    def increase(self, *of: str) -> float:
        """Return by how much all series of a metric with these first labels grew between their own samples."""
        found = [values for name, values in self.samples.items() if name[: len(of)] == of]
        return sum(max(after - before, 0.0) for values in found for before, after in pairwise(values))


def ranks(tmp_path: Path, clock: FakeClock, count: int = 2, world: int | None = None, attempt: int = 0) -> list[Process]:
    made = [Process(tmp_path / "spool" / "pod", rank=rank, world_size=world or count, attempt=attempt) for rank in range(count)]
    for process in made:
        process.clock = clock
        process.start()
    return made


def train(agent: Agent, clock: FakeClock, processes: list[Process], *walls: dict[str, list[float]]) -> None:
    """Let two ranks do steps. `walls`: of each step, by phase the seconds of both ranks."""
    for wall in walls:
        clock.now += max(map(sum, zip(*wall.values(), strict=True)))
        for number, process in enumerate(processes):
            process.step(**{phase: seconds[number] for phase, seconds in wall.items()})
        agent.tick()


def both(seconds: float, count: int = LEAST_STEPS) -> list[dict[str, list[float]]]:
    return [{"forward": [seconds, seconds]}] * count


def slowdown(agent: Agent) -> Histogram:
    found = value(agent, "tachoscope_step_slowdown_ratio", "job")
    assert isinstance(found, Histogram)
    return found


def slower_than(bound: float, histogram: Histogram) -> int:
    return sum(histogram.counts) - sum(histogram.counts[: STEP_SLOWDOWN.buckets.index(bound) + 1])


# --- the steps -----------------------------------------------------------------------------------------------------------------


def test_a_step_is_as_slow_as_its_slowest_rank_and_counts_once(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    train(agent, clock, ranks(tmp_path, clock), *both(1.0), *both(1.0, 1), {"forward": [1.0, 1.4]}, {"forward": [2.4, 1.0]})
    found = slowdown(agent)

    assert sum(found.counts) == 3
    assert (slower_than(1.25, found), slower_than(2.0, found)) == (2, 1)
    assert found.sum == pytest.approx(1.0 + 1.4 + 2.4, rel=0.01)


def test_steps_of_a_job_that_has_ranks_elsewhere_count_as_well(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    train(agent, clock, ranks(tmp_path, clock, world=16), *both(1.0), *both(1.4, 1))

    assert slower_than(1.25, slowdown(agent)) == 1


def test_a_checkpoint_of_one_rank_for_which_the_others_wait_is_no_slow_step(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    saves = {"forward": [1.0, 1.0], "checkpoint": [20.0, 0.0], "backward": [0.0, 20.0]}
    evaluates = {"forward": [1.0, 1.0], "evaluation": [30.0, 30.0]}
    waits = {"forward": [1.0, 1.0], "data_wait": [3.5, 0.0], "backward": [0.0, 3.5]}
    train(agent, clock, ranks(tmp_path, clock), *both(1.0), saves, evaluates, waits)
    found = slowdown(agent)

    assert (sum(found.counts), slower_than(1.25, found), slower_than(3.0, found)) == (3, 1, 1)


def test_steps_that_are_done_again_and_those_of_another_attempt_say_nothing_of_this_one(
    tmp_path: Path, clock: FakeClock, agent: Agent
) -> None:
    first = ranks(tmp_path, clock)
    train(agent, clock, first, *both(1.0), *both(1.0))
    before = sum(slowdown(agent).counts)
    for process in first:
        process.spool.close()
    pass_seconds(agent, clock, 3)
    again = ranks(tmp_path, clock, attempt=1)
    train(agent, clock, again, *both(5.0, 2 * LEAST_STEPS))
    assert sum(slowdown(agent).counts) == before, "they were done before"
    train(agent, clock, again, *both(5.0))
    assert sum(slowdown(agent).counts) == before, "there were not enough"
    train(agent, clock, again, *both(5.0))

    assert sum(slowdown(agent).counts) == before + LEAST_STEPS
    assert slower_than(1.05, slowdown(agent)) == 0, "five seconds are usual now"


# --- trap 6: a counter that is born with a value shows no growth ----------------------------------------------------------------


def test_everything_is_there_at_zero_before_it_happens(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    pass_seconds(agent, clock, 1)
    for result, causes in ENDS.items():
        for cause in causes:
            assert value(agent, "tachoscope_jobs_finished_total", result, cause) == 0.0
    server = Written(tmp_path / "spool" / "web", Server())
    server.server.start(clock.now)
    server.flush()
    (rank,) = ranks(tmp_path, clock, 1)
    pass_seconds(agent, clock, 2)

    assert value(agent, "tachoscope_hangs_total", "job") == 0.0
    assert value(agent, "tachoscope_worker_failures_total", "job", "node-1") == 0.0
    assert value(agent, "tachoscope_restarts_total", "job") == 0.0
    assert [value(agent, "tachoscope_requests_joint_total", "chat", "tiny", "1", met) for met in ("yes", "no")] == [0.0, 0.0]
    for histogram in ("step_slowdown_ratio", "recovery_seconds", "checkpoint_blocking_seconds"):
        found: Any = value(agent, f"tachoscope_{histogram}", "job")
        assert sum(found.counts) == 0
    families = {family.metric.name: family.points for family in agent.families()}
    assert families["tachoscope_integrity_events_total"] == [], "of a job that is not checked nothing is known"
    rank.write(records.IntegrityEvent, step=100, check="parameters", checksum="a")
    pass_seconds(agent, clock, 2)
    for kind in INTEGRITY_KINDS:
        assert value(agent, "tachoscope_integrity_events_total", "job", kind) == 0.0


def test_what_the_first_check_of_a_job_finds_is_an_increase(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    scraped = Scraped(agent, clock)
    (rank,) = ranks(tmp_path, clock, 1)
    scraped.go_on(30)
    rank.write(records.IntegrityEvent, step=1, check="parameters", not_finite=["loss"])
    rank.write(records.ShardFailed, shard="bad", error="ReadError")
    scraped.go_on(120)

    assert scraped.increase("integrity_events_total", "job", "loss") == 1.0
    assert scraped.increase("integrity_events_total", "job", "parameters") == 0.0
    assert scraped.increase("shard_failures_total", "job", "bad") == 1.0


def test_an_end_is_an_increase_also_on_a_node_whose_agent_has_only_begun(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    scraped = Scraped(agent, clock)
    (rank,) = ranks(tmp_path, clock, 1)
    scraped.go_on(15)
    rank.end()
    scraped.go_on(300)

    assert scraped.increase("jobs_finished_total") == 1.0


# --- traps 15 and 20: who vanishes, or hangs, must not take its own measure along ------------------------------------------------


def test_a_job_that_is_silent_is_active_and_its_time_goes_on_as_hung(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    processes = ranks(tmp_path, clock)
    for _ in range(5):
        clock.now += 1.0
        for process in processes:
            process.step(forward=1.0)
    pass_seconds(agent, clock, 60)
    scraped = Scraped(agent, clock)
    scraped.go_on(300)

    (active,) = [values for name, values in scraped.samples.items() if name[0] == "job_active"]
    assert active == [1.0] * 20, "a sample of it at each scrape, though nothing was written"
    spent = sum(scraped.increase("time_seconds_total", "job", rank) for rank in ("0", "1"))
    hung = sum(
        max(values) - min(values)
        for name, values in scraped.samples.items()
        if (name[0], name[-1]) == ("time_seconds_total", "hung")
    )
    assert hung == pytest.approx(2 * (300 - SCRAPE_SECONDS))
    assert spent == pytest.approx(hung), "the whole, of which the good part is a share, grows by all of the time"
    assert scraped.increase("job_time_seconds_total", "job") == pytest.approx(hung)
    assert scraped.increase("job_held_seconds_total", "job") == pytest.approx(hung)
    assert scraped.increase("job_effective_seconds_total", "job") == 0.0


def test_a_job_that_is_killed_is_inactive_and_not_absent_for_as_long_as_its_series_last(
    tmp_path: Path, clock: FakeClock, agent: Agent
) -> None:
    launcher = Process(tmp_path / "spool" / "pod", rank=records.LAUNCHER_RANK)
    launcher.clock = clock
    launcher.start()
    (rank,) = ranks(tmp_path, clock, 1)
    rank.step()
    pass_seconds(agent, clock, 5)
    for process in (rank, launcher):
        process.spool.close()
    scraped = Scraped(agent, clock)
    scraped.go_on(round(agent.config.retention_seconds) + 60)
    (active,) = [values for name, values in scraped.samples.items() if name[0] == "job_active"]

    assert len(active) == pytest.approx(agent.config.retention_seconds / SCRAPE_SECONDS, abs=2)
    assert set(active) == {0.0}
    for gone in ("steps_total", "step_slowdown_ratio", "hangs_total"):
        assert not [family.points for family in agent.families() if family.metric.name == f"tachoscope_{gone}" and family.points]
    assert scraped.samples["jobs_finished_total", "failed", "unknown"][-1] == 1.0, "the node's own counters stay"


# --- trap 16: what lasts less than a scrape ---------------------------------------------------------------------------------------


def test_a_job_of_a_minute_is_seen_though_its_processes_are_gone(tmp_path: Path, clock: FakeClock, agent: Agent) -> None:
    scraped = Scraped(agent, clock)
    (rank,) = ranks(tmp_path, clock, 1)
    for _ in range(4):
        for _ in range(SCRAPE_SECONDS):
            clock.now += 1.0
            rank.step(forward=1.0)
            agent.tick()
        scraped.look()
    rank.end()
    scraped.go_on(300)

    assert scraped.samples["steps_total", "job", "0"] == [15.0, 30.0, 45.0] + [60.0] * 21
    assert scraped.increase("steps_total") == 45.0, "only what came before its first scrape is missed"
    assert scraped.increase("jobs_finished_total", "completed") == 1.0


# --- trap 17: a gauge of the last error does not move when it comes again ---------------------------------------------------------


def test_the_same_xid_twice_counts_twice(tmp_path: Path, clock: FakeClock) -> None:
    agent = agent_of(tmp_path, clock=clock, gpu={"enabled": "off", "kernel_log": str(tmp_path / "kmsg")})
    uuid = "GPU-11111111-0000-4000-8000-000000000000"
    for at in (100.0, 200.0, 300.0):
        agent.collecting.health.on_xid(uuid, "", 79, at)
    pass_seconds(agent, clock, 2)

    assert value(agent, "tachoscope_gpu_xid_errors_total", "", uuid, "79") == 3.0
    assert value(agent, "tachoscope_gpu_xid_last_seen_seconds", "", uuid, "79") == 300.0
    agent.close()


# --- hangs ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("watched_by", ["launcher", "agent"])
def test_a_hang_counts_once_however_long_it_lasts_and_whoever_watches(
    tmp_path: Path, clock: FakeClock, agent: Agent, watched_by: str
) -> None:
    launcher = Process(tmp_path / "spool" / "pod", rank=records.LAUNCHER_RANK)
    launcher.clock = clock
    if watched_by == "launcher":
        launcher.start()
    processes = ranks(tmp_path, clock)
    for _ in range(5):
        clock.now += 0.5
        for process in processes:
            process.step(forward=0.5)
    if watched_by == "launcher":
        launcher.write(records.WorkerHung, since_time=launcher.unix_clock(), step=5)
    for _ in range(20):
        for process, phase in zip(processes, ("backward", "data_wait"), strict=True):
            process.write(records.Heartbeat, step=5, phase=phase)
        pass_seconds(agent, clock, 5)

    assert value(agent, "tachoscope_hangs_total", "job") == 1.0
    agent.close()
