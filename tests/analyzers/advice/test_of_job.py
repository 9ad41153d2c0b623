"""From the records of a job to advice: planted costs come back as the right numbers, and what was not measured stays out of it."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from gpu_making import FakeGpu, gpu_job, memory, use, write_job, write_samples
from loader_simulation import waits
from making import beat, envelope, job
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import from_spool, from_store
from tachoscope_core.records import records
from tachoscope_core.records.records import LoaderSettings
from tachoscope_core.report.report import AdvisedSettings, Finding, Report, dump
from tachoscope_core.report.taxonomy import BY_SLUG
from tachoscope_core.storage.store import Store

BASE = {"data_wait": 0.001, "forward": 0.030, "backward": 0.062, "optimizer": 0.004, "other": 0.001}
REST = sum(BASE.values())
STEPS = 60


def report(
    tmp_path: Path, own: list[list[dict[str, float]]], *, transfer: float = 0.002, more: bytes = b"", **options: Any
) -> Report:
    """Judge a job whose ranks wait for each other in backward."""
    steps, blocked = own, None
    if len(own[0]) > 1:
        totals = [[sum(phases.values()) for phases in row] for row in own]
        blocked = [[max(row) - mine + transfer for mine in row] for row in totals]
        steps = [
            [phases | {"backward": phases["backward"] + wait} for phases, wait in zip(row, waited, strict=True)]
            for row, waited in zip(own, blocked, strict=True)
        ]
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job(steps, blocked=blocked, **options) + more)
    return analyze(from_spool([path]))


def step(**changes: float) -> dict[str, float]:
    return BASE | changes


def loading(
    ranks: int, *, workers: float = 0.0, used: float = 0.5, idle: float | None = 1.0, looks: str = "sleep", **changes: Any
) -> list[Any]:
    """Return heartbeats of ranks on one host that use so many cores each; loaders and their workers sleep.

    `looks` is what they were seen doing while training waits; `changes` are of the loader's settings and other signals.
    """
    settings = {name: changes.pop(name) for name in LoaderSettings.__struct_fields__ if name in changes}
    loader = LoaderSettings(**{"workers": int(workers), "prefetch_factor": 2 if workers else 0, **settings})
    signals = {"workers": workers, "process_cpu_seconds": 5.0 * used}
    signals |= {"worker_seconds": 5.0 * workers, "worker_cpu_seconds": 0.0} if workers else {}
    signals |= {"idle_core_seconds": 5.0 * idle} if idle is not None else {}
    signals |= changes
    return [beat(rank, wait_samples={"data_wait": {looks: 40}}, signals=signals, loader=loader) for rank in range(ranks)]


def first(result: Report) -> Finding:
    return result.findings[0]


def promised(finding: Finding) -> float:
    """Return how many times as fast the action promises the step to be."""
    new, unit, old, old_unit = re.findall(r"Expected step[^:]*: ([\d.]+) (m?s) instead of ([\d.]+) (m?s)", finding.action)[0]
    return float(old) / float(new) * (1000 if (unit, old_unit) == ("ms", "s") else 1)


def workers_in(finding: Finding) -> int:
    return int(re.findall(r"num_workers=(\d+)", finding.action)[0])


@pytest.mark.parametrize("making", [0.05, 0.08, 0.15, 0.4, 1.0])
def test_a_loader_in_the_training_process_gets_the_workers_that_hide_its_cost(tmp_path: Path, making: float) -> None:
    used = REST / (making + REST)
    found = first(report(tmp_path, [[step(data_wait=making)]] * STEPS, heartbeats=loading(1, used=used, idle=30.0), cores=32))

    assert found.class_ == "input_workers"
    assert max(waits([making] * 200, REST, workers_in(found))) < 1e-9
    assert promised(found) == pytest.approx(found.speedup_if_fixed, rel=0.01)


@pytest.mark.parametrize(("making", "workers"), [(0.15, 1), (0.3, 2), (0.9, 4)])
def test_a_loader_with_too_few_workers_gets_enough_by_the_rate_at_which_they_deliver(
    tmp_path: Path, making: float, workers: int
) -> None:
    waited = waits([making] * 100, REST, workers)[:STEPS]
    own = [[step(data_wait=seconds + 0.001)] for seconds in waited]

    used = REST / (REST + sum(waited) / STEPS)
    found = first(report(tmp_path, own, heartbeats=loading(1, workers=workers, used=used, idle=30.0), cores=32))

    assert found.class_ == "input_workers"
    assert workers_in(found) > workers
    assert max(waits([making] * 200, REST, workers_in(found))) < 1e-9
    assert promised(found) == pytest.approx(found.speedup_if_fixed, rel=0.01)


def test_a_loader_that_computes_where_no_core_is_idle_is_not_given_more_workers(tmp_path: Path) -> None:
    own = [[step(data_wait=0.08)] * 2] * STEPS

    idle, busy, taken = (
        first(report(tmp_path, own, heartbeats=loading(2, used=used, idle=idle), data_cpu=0.95, cores=cores))
        for used, idle, cores in ((0.99, 6.0, 8), (0.99, 0.01, 2), (0.2, 0.01, 8))
    )

    assert idle.class_ == busy.class_ == taken.class_ == "input_preprocess"
    assert workers_in(idle) == workers_in(taken) == 2
    assert "if cores are free: other processes use 7.6 of 8" in taken.action
    assert "more workers cannot help" in busy.action
    assert promised(busy) == pytest.approx(busy.speedup_if_fixed, rel=0.01)


def test_idle_cores_that_were_not_measured_are_left_to_the_reader(tmp_path: Path) -> None:
    found = first(report(tmp_path, [[step(data_wait=0.08)]] * STEPS, heartbeats=loading(1, idle=None), data_cpu=0.95))

    assert "if as many cores are free" in found.action


def test_a_late_ranks_loader_is_named_after_its_shards(tmp_path: Path) -> None:
    found = first(report(tmp_path, [[step(), step(data_wait=0.08)]] * STEPS, heartbeats=loading(2)))

    assert found.class_ == "input_straggler"
    assert "on rank 1, if its shards and storage path are in order" in found.action
    assert promised(found) == pytest.approx(found.speedup_if_fixed, rel=0.01)


def test_a_late_loader_that_is_another_ranks_each_step_gets_the_standard_fix(tmp_path: Path) -> None:
    own = [[step(data_wait=0.08 if number % 2 == rank else 0.001) for rank in range(2)] for number in range(STEPS)]
    found = first(report(tmp_path, own, heartbeats=loading(2)))

    assert (found.class_, found.ranks) == ("input_straggler", "all")
    assert found.action == BY_SLUG["input_straggler"].fix


def test_long_waits_in_few_steps_are_no_want_of_workers(tmp_path: Path) -> None:
    own = [[step(data_wait=2.0 if number % 25 == 24 else 0.001)] for number in range(100)]
    found = first(report(tmp_path, own, heartbeats=loading(1, workers=4, iterators=4)))

    assert "persistent_workers=True" in found.action
    assert "num_workers" not in found.action
    assert promised(found) == pytest.approx(found.speedup_if_fixed, rel=0.01)


def test_long_waits_that_begin_no_epoch_promise_nothing(tmp_path: Path) -> None:
    own = [[step(data_wait=2.0 if number % 25 == 24 else 0.001)] for number in range(100)]

    found = first(report(tmp_path, own, heartbeats=loading(1, workers=4, iterators=1, persistent_workers=True)))

    assert "prefetch_factor" in found.action
    assert (found.advice, found.speedup_if_fixed) == (UNSET, None)


def test_reading_asks_for_the_rate_that_the_storage_must_give(tmp_path: Path) -> None:
    beats = [beat(0, wait_samples={"data_wait": {"disk": 40}}, signals={"workers": 0.0, "read_bytes": 500e6})]
    found = first(report(tmp_path, [[step(data_wait=0.101)]] * STEPS, heartbeats=beats))

    assert found.class_ == "input_fetch"
    megabytes_a_step = 100.0 * (REST + 0.1)
    asked, now = re.findall(r"storage gives ([\d.]+) MB/s \(now ([\d.]+)\)", found.action)[0]
    assert float(now) == pytest.approx(100.0, rel=0.01)
    assert float(asked) == pytest.approx(megabytes_a_step / REST, rel=0.02)


QUICK = {"data_wait": 0.0003, "forward": 0.0001, "backward": 0.00015, "optimizer": 0.00005}


def test_a_batch_that_is_made_sooner_than_a_worker_hands_it_over_gets_no_workers(tmp_path: Path) -> None:
    found = first(report(tmp_path, [[QUICK]] * STEPS, heartbeats=loading(1, idle=30.0), data_cpu=0.95, cores=32))

    assert found.class_ == "input_preprocess"
    assert "no workers for so small batches" in found.action
    assert "num_workers=" not in found.action
    assert (found.advice, found.speedup_if_fixed) == (UNSET, None)


@pytest.mark.parametrize(("size", "workers"), [(1_000, True), (300_000_000, False)])
def test_the_bytes_of_a_batch_count_for_its_hand_over(tmp_path: Path, size: int, workers: bool) -> None:
    found = first(report(tmp_path, [[step(data_wait=0.05)]] * STEPS, heartbeats=loading(1, idle=30.0, batch_bytes=size), cores=32))

    assert ("num_workers=" in found.action) == workers


def test_the_hand_over_stays_in_the_step_that_is_promised(tmp_path: Path) -> None:
    beats = loading(1, idle=30.0, batch_bytes=10_000_000)
    found = first(report(tmp_path, [[step(data_wait=0.08)]] * STEPS, heartbeats=beats, cores=32))

    handover = threshold("handover_seconds") + 10e6 / threshold("handover_bytes_per_second")
    assert isinstance(found.advice, AdvisedSettings)
    assert found.advice.settings == {"num_workers": 2, "persistent_workers": True}
    assert found.advice.expected_step_seconds == pytest.approx(REST - 0.001 + handover, rel=0.001)


@pytest.mark.parametrize("wait", [0.002, 0.06])
def test_idle_workers_are_not_what_is_missing(tmp_path: Path, wait: float) -> None:
    own = [[{"data_wait": wait, "forward": wait / 3, "backward": wait / 2}]] * STEPS
    beats = loading(1, workers=2, idle=30.0, looks="poll", worker_cpu_seconds=0.13 * 10.0)

    found = first(report(tmp_path, own, heartbeats=beats, cores=32))

    assert found.class_ == "input_workers"
    assert found.action.startswith("not more workers")
    assert found.speedup_if_fixed is None
    assert ("Handing a batch over costs about 1.5 ms" in found.action) == (wait < 0.005)
    assert found.advice == (AdvisedSettings(settings={"num_workers": 0}) if wait < 0.005 else UNSET)


def test_workers_of_a_data_set_that_does_not_split_itself_are_never_more_than_one(tmp_path: Path) -> None:
    def judged(workers: int, **settings: bool) -> Finding:
        beats = loading(1, workers=workers, idle=30.0, iterable=True, **settings)
        return first(report(tmp_path, [[step(data_wait=0.25)]] * STEPS, heartbeats=beats, cores=32))

    none, one, split = judged(0), judged(1), judged(1, shards=True)

    assert workers_in(none) == 1
    assert "num_workers=" not in one.action
    assert "get_worker_info" in one.action
    assert workers_in(split) > 1


@pytest.mark.parametrize(("waits", "cpu", "most"), [(15.0, 0.0, 2), (15.0, 0.95, 2), (0.8 * REST, 0.95, 1)])
def test_no_more_workers_are_advised_than_there_are_cores(tmp_path: Path, waits: float, cpu: float, most: int) -> None:
    """Where making input computes, too, the model has a core of its own, unless it waits most of the time."""
    own = [[step(data_wait=waits)]] * STEPS
    found = first(report(tmp_path, own, heartbeats=loading(1, looks="sleep", used=1.0, idle=1.0), data_cpu=cpu))

    assert all(int(number) <= most for number in re.findall(r"num_workers=(\d+)", found.action))
    if not cpu:
        assert found.advice == AdvisedSettings(
            settings={"num_workers": 2, "persistent_workers": True}, expected_step_seconds=pytest.approx(7.5, rel=0.01)
        )


@pytest.mark.parametrize(
    "room",
    [
        {"available_bytes": 6e9, "resident_bytes": 1.4e9},
        {"batch_bytes": 100_000_000, "shared_memory_bytes": 500_000_000},
    ],
)
def test_no_more_workers_are_advised_than_memory_holds(tmp_path: Path, room: dict[str, Any]) -> None:
    found = first(report(tmp_path, [[step(data_wait=1.0)]] * STEPS, heartbeats=loading(1, idle=30.0, **room), cores=32))

    assert workers_in(found) == 2


def test_what_a_program_may_set_is_in_the_report_and_nothing_where_there_is_nothing(tmp_path: Path) -> None:
    saves = [[step(checkpoint=0.6 if number % 10 == 5 else 0.0)] for number in range(STEPS)]
    saved, late = first(report(tmp_path, saves)), report(tmp_path, [[step(), step(forward=0.11)]] * STEPS)
    exchange = first(report(tmp_path, [[step()] * 2] * STEPS, transfer=0.05))

    assert isinstance(saved.advice, AdvisedSettings)
    assert saved.advice.settings["checkpoint_interval_seconds"] > 100
    assert saved.advice.expected_step_seconds == pytest.approx(REST, rel=0.01)
    assert exchange.advice == AdvisedSettings(
        settings={"accumulated_batches": 3}, expected_step_seconds=pytest.approx(REST + 0.05 / 3, rel=0.02)
    )
    assert b'"advice"' not in dump(late)


def test_a_slow_rank_is_told_with_its_host_and_its_cost(tmp_path: Path) -> None:
    found = first(report(tmp_path, [[step(), step(forward=0.11), step()]] * STEPS))

    assert found.class_ == "compute_straggler"
    assert found.action.startswith(
        "rank 1 (host node-1, local rank 1): late in 10 of 10 parts of the run, costs 3 ranks x 80 ms / 180 ms = 1.3"
    )


def test_saves_that_stall_are_told_with_interval_and_cost(tmp_path: Path) -> None:
    own = [[step(checkpoint=0.6 if number % 10 == 5 else 0.0), step()] for number in range(STEPS)]
    found = first(report(tmp_path, own))

    assert found.class_ == "checkpoint_stall"
    assert re.match(r"training stands still for 600 ms every 1\.6\d? s, 3\d % of the time\. Best, ", found.action)
    assert found.action.endswith("(rates assumed). Or save in the background")


def test_a_single_save_has_no_interval_and_gets_the_standard_fix(tmp_path: Path) -> None:
    own = [[step(checkpoint=3.0 if number == 30 else 0.0)] for number in range(STEPS)]

    assert first(report(tmp_path, own)).action == BY_SLUG["checkpoint_stall"].fix


def test_a_job_that_failed_before_is_sent_to_its_own_rate(tmp_path: Path) -> None:
    own = [[step(checkpoint=0.6 if number % 10 == 5 else 0.0)] for number in range(STEPS)]
    failed = records.encode(records.WorkerFailed(**envelope(0, 9_999), reason="killed"))

    assert "tachoscope goodput planted" in first(report(tmp_path, own, more=failed)).action


def test_exchange_is_told_with_what_overlap_and_accumulation_bring(tmp_path: Path) -> None:
    found = first(report(tmp_path, [[step()] * 2] * STEPS, transfer=0.05))

    assert found.class_ == "comm_exposed"
    assert "at most min(50 ms, 62 ms) hides" in found.action
    assert "accumulate 3 batches" in found.action


def test_threads_that_take_turns_on_the_cores_are_cut(tmp_path: Path) -> None:
    found = first(report(tmp_path, [[step(forward=0.05)] * 2] * STEPS, delay=[[0.02] * 2] * STEPS, threads=4))

    assert found.class_ == "cpu_contention"
    assert found.action.startswith("OMP_NUM_THREADS=1")


def test_a_device_that_is_too_large_is_told_how_much_the_batch_may_grow(tmp_path: Path) -> None:
    gauges = use(sm=0.2, sm_occupancy=0.05, tensor=0.1, fp32=0.1, dram=0.5, graphics=1.0) | memory(lambda at: 0.3)
    store, gpus = Store(str(tmp_path / "store")), [FakeGpu(0, gauges=gauges)]
    write_job(store, gpu_job(gpus, 300.0))
    write_samples(store, gpus, 300.0)

    found = first(analyze(from_store(store, "planted")))

    assert found.class_ == "underfilled"
    assert found.action.startswith("raise the batch per device 3 times: 0.8 / 0.2 = 4 times the batch fill the device")
    assert "24 GB of 80 GB are in use" in found.action


def test_every_action_stays_short_enough_to_be_read(tmp_path: Path) -> None:
    jobs: list[tuple[list[list[dict[str, float]]], dict[str, Any]]] = [
        ([[step(data_wait=0.38)] * 2] * STEPS, {"heartbeats": loading(2, idle=0.7), "data_cpu": 0.95}),
        ([[step(), step(data_wait=0.08)]] * STEPS, {"heartbeats": loading(2)}),
        ([[step()] * 2] * STEPS, {"transfer": 0.05}),
        ([[step(), step(forward=0.11)]] * STEPS, {}),
        ([[step(checkpoint=0.6 if number % 10 == 5 else 0.0)] for number in range(STEPS)], {}),
    ]

    for own, options in jobs:
        for found in report(tmp_path, own, **options).findings:
            assert len(found.action) <= 310, found.action
