"""What the watch says of a scheduler's queue and accelerators."""

import logging
import os
import sys
from pathlib import Path

import pytest

from tachoscope_analyzers.schedulers.slurm.allocations import SacctRow
from tachoscope_analyzers.schedulers.slurm.queue_table import NodeAccelerators, QueuedJob
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics import scheduler as names
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.storage.node_status import RankStatus
from tachoscope_service.common import slurm_client
from tachoscope_service.common.log import Log
from tachoscope_service.metrics.family import Labels
from tachoscope_watch.live_jobs import LiveJob, LiveRank, NodeReader
from tachoscope_watch.scheduler.collector import SchedulerCollector
from tachoscope_watch.scheduler.slurm import Slurm, Snapshot
from watched_jobs import PlantedJob

NOW = 4e9  # later than a collector of these tests begins


def queued(
    job: str, *, started: float | None = None, eligible: float | None = NOW - 600, gpus: int = 8, tasks: int = 1
) -> QueuedJob:
    return QueuedJob(
        job=job,
        partition="train",
        account="vision",
        pending=started is None,
        tasks=tasks,
        eligible=eligible,
        started=started,
        accelerators=gpus,
    )


def row(job: str, state: str, started: float | None, ended: float | None = None) -> SacctRow:
    """Return a job record of eight accelerators that were eligible 10 s after `NOW`."""
    return SacctRow(
        job=job,
        submitted=NOW,
        eligible=NOW + 10,
        started=started,
        ended=ended,
        states=(state,),
        node_list="node1" if started else "None assigned",
        accelerators=8,
        partition="train",
    )


def live(job: str, step_time: float, *, now: float = NOW, ended: str = "", scheduler_job: str = "") -> dict[str, LiveJob]:
    rank = RankStatus(0, "writer", step_time=step_time, record_time=now, ended=ended)
    found = LiveJob(job, now, 30.0, 0, 1, "", [LiveRank("node1", rank, silent=False)], {}, 0, [], scheduler_job=scheduler_job)
    return {job: found}


class Planted:
    """A scheduler that answers what is planted, or fails."""

    name = "slurm"

    def __init__(self) -> None:
        self.jobs: list[QueuedJob] = []
        self.recent: list[SacctRow] = []
        self.nodes = [NodeAccelerators(node="node1", partitions=("train",), state="usable", total=8, used=0)]
        self.fault: Exception | None = None

    def snapshot(self, now: float) -> Snapshot:
        if self.fault is not None:
            raise self.fault
        return Snapshot(time=now, jobs=self.jobs, nodes=self.nodes, recent=self.recent)


@pytest.fixture
def scheduler() -> Planted:
    return Planted()


@pytest.fixture
def collector(scheduler: Planted) -> SchedulerCollector:
    return SchedulerCollector(scheduler, Log(logging.getLogger("test")))


def values(collector: SchedulerCollector, metric: Metric) -> dict[Labels, float]:
    return {labels: value for family in collector.families if family.metric is metric for labels, value in family.points}  # type: ignore[misc]


def held(collector: SchedulerCollector) -> dict[str, float]:
    return {activity: count for (_, activity), count in values(collector, names.ACCELERATORS_HELD).items() if count}


def test_jobs_that_wait_for_more_than_accelerators_have_no_age(collector: SchedulerCollector, scheduler: Planted) -> None:
    scheduler.jobs = [
        queued("1", eligible=NOW - 600),
        queued("2", tasks=4),
        queued("3", eligible=None),
        queued("4", eligible=NOW + 9),
    ]

    collector.look(NOW)

    assert values(collector, names.PENDING_JOBS) == {("train", "eligible"): 5, ("train", "not_eligible"): 2}
    assert values(collector, names.PENDING_ACCELERATORS)["train", "eligible"] == 40
    assert values(collector, names.OLDEST_PENDING) == {("train",): 600}


def test_free_accelerators_of_a_drained_node_are_not_idle(collector: SchedulerCollector, scheduler: Planted) -> None:
    scheduler.nodes += [
        NodeAccelerators(node="node2", partitions=("train",), state="drained", total=8, used=3),
        NodeAccelerators(node="node3", partitions=("train",), state="down", total=8, used=0),
    ]

    collector.look(NOW)

    counts = {state: count for (state,), count in values(collector, names.ACCELERATORS).items()}
    assert counts == {"allocated": 3, "idle": 8, "drained": 5, "down": 8}


def test_a_job_is_idle_only_if_its_records_say_so(collector: SchedulerCollector, scheduler: Planted) -> None:
    old = NOW - 7200
    scheduler.jobs = [queued("1", started=old, gpus=1), queued("2", started=old, gpus=2), queued("3", started=old, gpus=4)]
    scheduler.jobs += [queued("4", started=NOW - 60, gpus=8)]

    collector.look(NOW)
    assert held(collector) == {"unknown": 15}

    collector.take_live(NOW, live("slurm-1", NOW - 5) | live("llm", old, scheduler_job="2") | live("slurm-4", 0.0))
    collector.look(NOW)
    assert held(collector) == {"stepping": 9, "idle": 2, "unreported": 4}


def test_a_job_with_a_name_of_its_own_is_known_by_the_slurm_job_of_its_processes(
    tmp_path: Path, collector: SchedulerCollector, scheduler: Planted
) -> None:
    job = PlantedJob(tmp_path, "llm")
    job.start(job.now - 60, lineage={"slurm_job": "4711"})
    job.steps(job.now - 50, job.now)
    job.ship()
    scheduler.jobs = [queued("4711", started=job.now - 7200)]

    collector.take_live(job.now, NodeReader(job.store).live_jobs(job.now))
    collector.look(job.now)

    assert held(collector) == {"stepping": 8}


def test_an_allocation_that_outlives_its_processes_becomes_idle_and_one_whose_node_is_silent_does_not(
    collector: SchedulerCollector, scheduler: Planted
) -> None:
    scheduler.jobs = [queued("1", started=NOW - 60, gpus=1), queued("2", started=NOW - 60, gpus=2)]
    collector.take_live(NOW, live("slurm-1", NOW - 5, ended="failed") | live("slurm-2", NOW - 5))
    collector.look(NOW)
    assert held(collector) == {"stepping": 3}

    collector.take_live(NOW + 3600, {})
    collector.look(NOW + 3600)

    assert held(collector) == {"idle": 1, "unreported": 2}


def test_each_start_and_each_interruption_counts_once(collector: SchedulerCollector, scheduler: Planted) -> None:
    for rows in ([row("7", "PENDING", None)], [row("7", "RUNNING", NOW + 70)], [row("7", "PREEMPTED", NOW + 70, NOW + 90)], []):
        scheduler.recent = rows
        collector.look(NOW)
    scheduler.recent = [row("7", "COMPLETED", 1000.0, 2000.0)]  # before the watch began
    collector.look(NOW)

    (waits,) = (family.points for family in collector.families if family.metric is names.GANG_WAIT)
    ((labels, histogram),) = waits
    assert labels == ("train",)
    assert (sum(histogram.counts), histogram.sum) == (1, 60)  # type: ignore[union-attr]
    assert values(collector, names.INTERRUPTIONS)["train", "preempted"] == 1


def test_a_job_that_was_preempted_counts_once_until_it_runs_again_also_if_both_are_in_one_answer(
    collector: SchedulerCollector, scheduler: Planted
) -> None:
    first, other = row("7", "PREEMPTED", NOW + 10, NOW + 50), row("8", "REQUEUED", NOW + 10, NOW + 60)
    again = row("8", "RUNNING", NOW + 80)
    for rows in ([first, row("7", "PENDING", None)], [row("7", "RUNNING", NOW + 350), again, other], [again]):
        scheduler.recent = rows
        collector.look(NOW)

    ((labels, histogram),) = next(family.points for family in collector.families if family.metric is names.REQUEUE_SECONDS)
    assert labels == ("train",)
    assert (sum(histogram.counts), histogram.sum) == (2, 300 + 20)  # type: ignore[union-attr]


def test_an_attempt_that_follows_a_preempted_one_as_another_job_is_known_by_the_name_that_agents_report(
    collector: SchedulerCollector, scheduler: Planted
) -> None:
    gone, other, again = (row(job, "RUNNING", NOW + at) for job, at in (("7", 10), ("8", 80), ("9", 90)))
    looks = (
        ([gone], live("llama", NOW, scheduler_job="7")),
        ([row("7", "PREEMPTED", NOW + 10, NOW + 50), other, again], live("gpt", NOW, scheduler_job="8")),
        ([other, again], live("llama", NOW, scheduler_job="9")),
        ([other, again], live("llama", NOW, scheduler_job="9")),
    )
    for rows, reported in looks:
        scheduler.recent = rows
        collector.take_live(NOW, reported)
        collector.look(NOW)

    ((_, histogram),) = next(family.points for family in collector.families if family.metric is names.REQUEUE_SECONDS)
    assert (sum(histogram.counts), histogram.sum) == (1, 40)  # type: ignore[union-attr]


@pytest.mark.parametrize("fault", [TachoscopeError("squeue does not answer within 30 s"), KeyError("JobID")])
def test_a_scheduler_that_does_not_answer_leaves_one_metric_and_counters_go_on_after_it(
    collector: SchedulerCollector, scheduler: Planted, fault: Exception
) -> None:
    collector.look(NOW)
    before = len(collector.families)
    scheduler.fault = fault
    collector.look(NOW)

    assert [(family.metric, family.points) for family in collector.families] == [(names.SCHEDULER_UP, [(("slurm",), 0.0)])]

    scheduler.fault = None
    collector.look(NOW)
    assert len(collector.families) == before


def test_a_slurm_whose_job_records_have_no_gpus_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path, monkeypatch, "scontrol", "print('AccountingStorageTRES = cpu,mem,energy,node,billing')")

    with pytest.raises(TachoscopeError, match="cpu,mem,energy,node,billing, without gres/gpu"):
        Slurm().snapshot(NOW)


@pytest.mark.parametrize(
    ("code", "message"),
    [("import time; time.sleep(1000)", "does not answer within 1 s"), ("while True: print('x' * 9999)", "prints more than 1 MiB")],
)
def test_a_client_has_limited_time_and_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str) -> None:
    _program(tmp_path, monkeypatch, "squeue", code)

    with pytest.raises(TachoscopeError, match=message):
        slurm_client.ask(["squeue"], seconds=1.0 if "sleep" in code else 60.0, most_bytes=1 << 20)


def test_what_a_user_set_for_views_of_the_queue_hides_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path, monkeypatch, "squeue", "import os; print(sorted(name for name in os.environ if name.startswith('S')))")
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")

    answer = slurm_client.ask(["squeue"])

    assert "SLURM_CONF" in answer.output
    assert "SQUEUE_STATES" not in answer.output


def _program(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str) -> None:
    (folder / name).write_text(f"#!{sys.executable}\n{code}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
