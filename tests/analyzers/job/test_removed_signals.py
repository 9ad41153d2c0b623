"""Jobs with planted faults and one signal less: the finding stays, becomes unknown, or its class is not measured; never another."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpu_making import FakeGpu, Held, gpu_job, write_job, write_samples
from making import beat, job, synchronous
from one_ledger import of_life, of_report
from removing import REMOVALS
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import JobRecords, from_spool, from_store
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report
from tachoscope_core.storage.store import Store

BASE = {"data_wait": 0.001, "forward": 0.030, "backward": 0.062, "optimizer": 0.004, "other": 0.001}
STEPS = 20
WORKERS = {"workers": 2.0, "worker_seconds": 5.0}
SLEEPING = {"heartbeats": [beat(rank, wait_samples={"data_wait": {"sleep": 40}}, signals={"workers": 0.0}) for rank in range(3)]}
READING = {"heartbeats": [beat(rank, wait_samples={"data_wait": {"file": 40}}, signals={"workers": 0.0}) for rank in range(3)]}
BUSY = {"heartbeats": [beat(rank, signals=WORKERS | {"worker_cpu_seconds": 4.8}) for rank in range(3)]}
IDLE = {
    "heartbeats": [
        beat(rank, wait_samples={"data_wait": {"sleep": 40}}, signals=WORKERS | {"worker_cpu_seconds": 0.1}) for rank in range(3)
    ]
}
ON_ALL_RANKS: dict[str, tuple[dict[str, float], dict[str, Any]]] = {
    "compute_bound": ({}, SLEEPING),
    "input_fetch": ({"data_wait": 0.081}, READING),
    "input_preprocess": ({"data_wait": 0.081}, SLEEPING | {"data_cpu": 0.95}),
    "input_preprocess with workers": ({"data_wait": 0.081}, BUSY),
    "input_workers": ({"data_wait": 0.081}, SLEEPING),
    "input_workers with workers": ({"data_wait": 0.081}, IDLE),
    "host_pause": ({"gc": 0.080}, SLEEPING),
    "unknown": ({"other": 0.081}, SLEEPING),
}
ON_ONE_RANK: dict[str, tuple[dict[str, float], dict[str, Any]]] = {
    "input_straggler": ({"data_wait": 0.081}, SLEEPING),
    "input_straggler that decodes": ({"data_wait": 0.081}, SLEEPING | {"data_cpu": 0.95, "other_cpu": 0.9}),
    "input_straggler with workers": ({"data_wait": 0.081}, IDLE),
    "compute_straggler": ({"forward": 0.110}, SLEEPING),
    "compute_straggler in backward": ({"backward": 0.142}, SLEEPING),
    "host_pause of one rank": ({"gc": 0.080}, SLEEPING),
    "unknown of one rank": ({"other": 0.081}, SLEEPING),
}
RARE = {
    "checkpoint_stall": {"checkpoint": 0.5, "other": 0.1},
    "host_pause by evaluation": {"evaluation": 0.8},
}


def step(**changes: float) -> dict[str, float]:
    return BASE | changes


def planted(folder: Path, own: list[list[dict[str, float]]], transfer: float = 0.002, **options: Any) -> JobRecords:
    steps, blocked = synchronous(own, transfer) if len(own[0]) > 1 else (own, None)
    path = folder / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job(steps, blocked=blocked, **{"other_cpu": 0.01} | options))
    return from_spool([path])


def of_hosts(folder: Path, numbers: Sequence[int]) -> Iterator[tuple[str, JobRecords]]:
    for number in numbers:
        healthy = [step()] * number
        for name, (changes, options) in ON_ALL_RANKS.items():
            yield f"{name}, {number} ranks", planted(folder, [[step(**changes)] * number] * STEPS, **options)
        for name, changes in RARE.items():
            own = [[step(**changes), *healthy[1:]] if row % 10 == 5 else healthy for row in range(STEPS)]
            yield f"{name}, {number} ranks", planted(folder, own, **SLEEPING)
        delay = {"delay": [[0.0] * (number - 1) + [0.080]] * STEPS}
        slow = [[*healthy[1:], step(forward=0.110)]] * STEPS
        yield f"cpu_contention, {number} ranks", planted(folder, slow, **SLEEPING | delay)
    for number in set(numbers) - {1}:
        for name, (changes, options) in ON_ONE_RANK.items():
            own = [[*[step()] * (number - 1), step(**changes)]] * STEPS
            yield f"{name}, {number} ranks", planted(folder, own, **options)
        yield f"comm_exposed, {number} ranks", planted(folder, [[step()] * number] * STEPS, 0.082, **SLEEPING)
        yield f"comm_exposed by hand, {number} ranks", planted(folder, [[step(collective=0.08)] * number] * STEPS, **SLEEPING)


def of_devices(folder: Path) -> Iterator[tuple[str, JobRecords]]:
    jobs: dict[str, tuple[list[FakeGpu], dict[str, Any]]] = {
        "compute_bound": ([FakeGpu(0), FakeGpu(1)], {}),
        "gpu_throttle": ([FakeGpu(0), FakeGpu(1, [Held(-100.0, 10_000.0, 0.5)])], {}),
        "gpu_throttle, not counted": ([FakeGpu(0), FakeGpu(1, [Held(-100.0, 10_000.0, 0.5)], counters=False)], {}),
        "compute_straggler": ([FakeGpu(0), FakeGpu(1)], {"extra": {1: 0.5}}),
    }
    for number, (name, (gpus, options)) in enumerate(jobs.items()):
        store = Store(str(folder / f"store-{number}"))
        write_job(store, gpu_job(gpus, 60.0, **options))
        write_samples(store, gpus, 60.0)
        yield f"{name} on devices", from_store(store, "planted")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, JobRecords]:
    """Jobs of two ranks, of the bars also of one and three."""
    folder = tmp_path_factory.mktemp("jobs")
    numbers = (2,) if request.config.getoption("--bar-runs") < 10 else (1, 2, 3)
    return {**dict(of_hosts(folder, numbers)), **dict(of_devices(folder))}


def problems(result: Report) -> set[str]:
    return {finding.class_ for finding in result.findings if finding.severity != "info"}


def of_less(job: JobRecords) -> Report | None:
    try:
        return analyze(job)
    except TachoscopeError:  # it says that there is no step to judge
        return None


def unmeasured(result: Report) -> set[str]:
    return {row.class_ for row in result.not_measured}


@cache
def slug(name: str) -> str:
    return name.split()[0].strip(",")


def test_with_all_signals_each_planted_fault_is_named(jobs: dict[str, JobRecords]) -> None:
    named = {name: problems(analyze(job)) or {"compute_bound"} for name, job in jobs.items()}

    assert named == {name: {slug(name)} for name in jobs}


def test_the_ledger_of_a_jobs_life_is_that_of_its_report(jobs: dict[str, JobRecords]) -> None:
    for name, planted_job in jobs.items():
        assert of_life(planted_job) == pytest.approx(of_report(planted_job), rel=1e-9, abs=1e-9), name


@pytest.mark.parametrize("signal", REMOVALS)
def test_without_a_signal_no_other_class_is_named(signal: str, jobs: dict[str, JobRecords]) -> None:
    wrong, forgotten = {}, []
    for name, whole in jobs.items():
        if (rest := REMOVALS[signal](whole)) == whole or (less := of_less(rest)) is None:
            continue
        wrong |= {name: other} if (other := problems(less) - {slug(name), "unknown"}) else {}
        if slug(name) != "compute_bound" and not problems(less) and slug(name) not in unmeasured(less):
            forgotten.append(name)

    assert wrong == {}
    assert forgotten == [], "it is neither found nor said that it could not be"


@pytest.mark.parametrize("signal", ["CPU clocks", "all clocks", "all clocks of rank 1", "device events"])
def test_without_the_clock_of_backward_no_job_is_called_healthy_and_nothing_is_made_up(
    signal: str, jobs: dict[str, JobRecords]
) -> None:
    devices = signal == "device events"
    name = "compute_bound on devices" if devices else "compute_bound, 2 ranks"

    result = of_less(REMOVALS[signal](jobs[name]))

    assert result is not None
    assert result.findings == []
    assert {"compute_bound", "compute_straggler", "comm_exposed"} <= unmeasured(result)
    assert "clock" in result.quality[0].what


def test_without_the_clock_of_backward_the_seconds_of_a_late_rank_are_kept_as_unknown(jobs: dict[str, JobRecords]) -> None:
    (whole,) = analyze(jobs["input_straggler, 2 ranks"]).findings

    (finding,) = analyze(REMOVALS["CPU clocks"](jobs["input_straggler, 2 ranks"])).findings

    assert finding.class_ == "unknown"
    assert finding.seconds_per_step == pytest.approx(whole.seconds_per_step, rel=0.05)
    assert finding.runner_up is None or finding.runner_up.class_ != "input_straggler"


def test_without_the_time_that_a_thread_waited_for_a_core_the_late_rank_is_named_and_the_cause_is_not(
    jobs: dict[str, JobRecords],
) -> None:
    (finding,) = analyze(REMOVALS["waiting for a core"](jobs["cpu_contention, 2 ranks"])).findings

    assert (finding.class_, finding.ranks) == ("unknown", [1])
    assert finding.runner_up is not None and finding.runner_up.class_ == "compute_straggler"
