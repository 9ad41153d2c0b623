"""Samples of a job's GPUs are found in the store, the right ones, and no more of them than needed."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_making import BEGIN, HOST, MAX_CLOCK, FakeGpu, Held, gpu_job, sample_lines, use, uuid, write_job, write_samples
from making import envelope, job
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records import gpu_samples
from tachoscope_analyzers.records.gpu_samples import Gpus, GpuSamples, of_job
from tachoscope_analyzers.records.load import from_spool, from_store
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.metrics.gpu import GPU_ACTIVE, GPU_CLOCK, GPU_NVLINK_BYTES, GPU_THROTTLED_SECONDS
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store, StoredSamples

SECONDS = 300.0


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the sample objects that were opened."""
    paths: list[str] = []
    read = Store.read

    def noted(self: Store, segment: Any) -> bytes:
        if isinstance(segment, StoredSamples):
            paths.append(segment.path)
        return read(self, segment)

    monkeypatch.setattr(Store, "read", noted)
    return paths


def stored(tmp_path: Path, gpus: Sequence[FakeGpu], seconds: float = SECONDS, **options: Any) -> Store:
    store = Store(str(tmp_path / "store"))
    write_job(store, gpu_job(gpus, seconds))
    write_samples(store, gpus, seconds, **options)
    return store


def gpus_of(store: Store) -> Gpus:
    return from_store(store, "planted").gpus


def of_rank(gpus: Gpus, rank: int) -> GpuSamples:
    return gpus.by_writer[envelope(rank)["writer"]]


def test_each_rank_gets_what_its_own_gpu_was_sampled_to_do(tmp_path: Path) -> None:
    gpus = gpus_of(stored(tmp_path, [FakeGpu(0), FakeGpu(1, [Held(100, 200, 0.5)])]))
    first, second = of_rank(gpus, 0), of_rank(gpus, 1)
    throttled = [100 <= at - BEGIN < 200 for at in second.times]

    assert np.diff(second.times) == pytest.approx(15.0)
    assert set(first.series(GPU_CLOCK, "sm", "current")) == {MAX_CLOCK}
    assert np.asarray(second.series(GPU_CLOCK, "sm", "current")) == pytest.approx(np.where(throttled, 0.5, 1.0) * MAX_CLOCK)
    assert second.series(GPU_THROTTLED_SECONDS, "hardware_thermal")[-1] == 1100.0
    assert np.isnan(second.series(GPU_NVLINK_BYTES, "receive")).all()
    assert gpus.missing == {}


def test_only_the_objects_of_the_jobs_hosts_and_of_its_window_are_opened(tmp_path: Path, opened: list[str]) -> None:
    store = stored(tmp_path, [FakeGpu(0)])
    write_samples(store, [FakeGpu(0)], SECONDS, host="node-2")
    for at in (-86400.0, -7200.0, 7200.0, 86400.0):
        store.write_samples(host=HOST, name=f"{int(BEGIN + at)}-x", time=BEGIN + at, lines=sample_lines([FakeGpu(0)], at))

    assert len(of_rank(gpus_of(store), 0).times) == 25
    assert {path.rsplit("/", 2)[-2] for path in opened} == {f"host={HOST}"}
    # one a minute, and the last one before the window, which may reach into it
    assert sorted(int(path.rsplit("/", 1)[-1].split("-")[0]) - int(BEGIN) for path in opened) == [
        -7200,
        -30,
        0,
        60,
        120,
        180,
        240,
        300,
    ]


def test_an_object_that_was_begun_before_midnight_is_found_for_a_job_after_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    midnight = (BEGIN // 86400 + 1) * 86400 - BEGIN
    for begin in (midnight - 300.0, midnight + 180.0):
        content = b"".join(sample_lines([FakeGpu(0)], begin + 10.0 * number) for number in range(48))
        store.write_samples(host=HOST, name=f"{int(BEGIN + begin)}-x", time=BEGIN + begin, lines=content)
    start = gpu_of_rank_0()

    found = of_job(store, [start], steps_at(midnight + 120.0), {start.writer: HOST}).by_writer[start.writer]

    assert found.times[0] == BEGIN + midnight + 40.0  # a minute before the first step
    assert np.diff(found.times) == pytest.approx(10.0)


def gpu_of_rank_0(**changes: Any) -> records.JobStarted:
    return records.JobStarted(**envelope(0), **{"world_size": 1, "pid": 1, "device": "cuda", "gpu_uuid": uuid(0)} | changes)


def steps_at(at: float) -> StepTable:
    return StepTable.of(
        records.StepDone(**envelope(0, 1 + number, time=BEGIN + at + 5.0 * number), step=number, wall_seconds=5.0, phase_seconds={})
        for number in range(-4, 5)
    )


@pytest.mark.parametrize("told", [uuid(0), f"GPU-{uuid(0)}", uuid(0).upper(), f"MIG-{uuid(0)}"])
def test_a_uuid_is_the_same_however_it_is_written(tmp_path: Path, told: str) -> None:
    store = stored(tmp_path, [FakeGpu(0)])
    start = gpu_of_rank_0(gpu_uuid=told)

    assert of_job(store, [start], steps_at(30.0), {start.writer: HOST}).by_writer.keys() == {start.writer}


def test_a_rank_whose_gpu_is_unknown_or_has_no_samples_says_so(tmp_path: Path) -> None:
    store = stored(tmp_path, [FakeGpu(0)])
    silent, elsewhere = gpu_of_rank_0(gpu_uuid=""), gpu_of_rank_0(gpu_uuid=uuid(7))

    assert "torch did not tell" in of_job(store, [silent], steps_at(30.0), {silent.writer: HOST}).missing[silent.writer]
    found = of_job(store, [elsewhere], steps_at(30.0), {elsewhere.writer: HOST})
    assert found.missing[elsewhere.writer] == f"metric samples of its GPU from the agent on {HOST}"
    assert found.by_writer == {}


def test_a_job_on_cpu_looks_for_no_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    write_job(store, job([[{"forward": 0.1}]] * 20))
    monkeypatch.setattr(Store, "samples", lambda *_, **__: pytest.fail("looked for samples"))

    assert gpus_of(store).by_writer == {}


def test_records_of_a_spool_have_no_samples_and_say_why(tmp_path: Path) -> None:
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(gpu_job([FakeGpu(0)], 60))

    missing = {row.class_: row.missing for row in analyze(from_spool([path])).not_measured}

    assert "spool" in missing["gpu_throttle"] and "spool" in missing["underfilled"]


def test_a_mig_instance_has_its_own_activity_and_the_clocks_of_its_gpu(tmp_path: Path) -> None:
    instance = FakeGpu(0, mig="3", counters=False, flags=False, gauges=use(sm=0.25))
    store = Store(str(tmp_path))
    write_job(store, gpu_job([instance], SECONDS))
    whole = FakeGpu(0, [Held(0, 200, 0.5)], gauges=use(sm=0.9))
    for number, at in enumerate(map(float, np.arange(-30.0, SECONDS, 15.0))):
        lines = sample_lines([whole], at).replace(uuid(0).encode(), uuid(9).encode())
        mine = b"\n".join(line for line in sample_lines([instance], at).splitlines() if b"active_ratio" in line)
        store.write_samples(host=HOST, name=f"{int(BEGIN + at)}-{number}", time=BEGIN + at, lines=mine + b"\n" + lines)

    found = of_rank(gpus_of(store), 0)

    assert found.mig
    assert set(found.series(GPU_ACTIVE, "sm")) == {0.25}
    assert sum(clock == 0.5 * MAX_CLOCK for clock in found.series(GPU_CLOCK, "sm", "current")) == 14


def test_of_a_long_job_a_bounded_number_of_rows_is_kept_and_of_objects_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    monkeypatch.setattr(gpu_samples, "MAX_SAMPLES", 20)
    held = [Held(0, 1800, 0.5)]
    found = of_rank(gpus_of(stored(tmp_path, [FakeGpu(0, held)], 3600.0)), 0)
    counter = found.series(GPU_THROTTLED_SECONDS, "hardware_thermal")

    assert len(opened) <= 21
    assert 15 <= len(found.times) <= 21
    assert counter[-1] - counter[0] == 1800.0
    assert max(np.diff(found.times)) < 2 * 3720 / 20


def test_objects_and_lines_that_are_broken_are_said_and_the_others_read(tmp_path: Path) -> None:
    store = stored(tmp_path, [FakeGpu(0)])
    broken, spoilt, *_ = sorted((tmp_path / "store" / "metrics").rglob("*.gz"))
    broken.write_bytes(b"not gzip")
    spoilt.write_bytes(
        gzip.compress(b'{"name":"tachoscope_gpu_clock_hertz","time":"late"}\n' + gzip.decompress(spoilt.read_bytes()))
    )

    gpus = gpus_of(store)
    report = analyze(from_store(store, "planted"))

    assert len(of_rank(gpus, 0).times) == 23
    assert gpus.source is not None and gpus.source.garbage_lines == 1
    assert [note.severity for note in report.quality] == ["limited"]
    assert broken.name in report.quality[0].what


def test_a_store_whose_samples_cannot_be_listed_still_gives_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored(tmp_path, [FakeGpu(0)])
    listed = store._fs.find

    def without_metrics(path: str, *arguments: Any, **options: Any) -> Any:
        if "/metrics/" in path:
            raise PermissionError("no right to list metrics")
        return listed(path, *arguments, **options)

    monkeypatch.setattr(store._fs, "find", without_metrics)
    report = analyze(from_store(store, "planted"))

    assert "gpu_throttle" in {row.class_ for row in report.not_measured}
    assert "no right to list metrics" in report.quality[0].what


def test_samples_that_were_shipped_twice_or_out_of_order_count_once(tmp_path: Path) -> None:
    store = stored(tmp_path, [FakeGpu(0)])
    before = of_rank(gpus_of(store), 0)
    late = b"".join(sample_lines([FakeGpu(0)], at) for at in (60.0, 45.0, 15.0))
    store.write_samples(host=HOST, name=f"{int(BEGIN + 61)}-again", time=BEGIN + 61, lines=late)

    after = of_rank(gpus_of(store), 0)

    assert list(after.times) == list(before.times)
    assert after.series(GPU_CLOCK, "sm", "current") == before.series(GPU_CLOCK, "sm", "current")


def test_jobs_that_had_the_gpu_before_or_after_do_not_share_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write_job(store, gpu_job([FakeGpu(0)], SECONDS))
    for number, at in enumerate(map(float, np.arange(-60.0, SECONDS + 60.0, 15.0))):
        jobs = ["planted"] if 0 <= at <= SECONDS else ["earlier"]
        jobs += ["passing"] * (at == 150.0) + ["beside"] * (at >= 150.0)
        lines = sample_lines([FakeGpu(0, jobs=jobs)], at)
        store.write_samples(host=HOST, name=f"{int(BEGIN + at)}-{number}", time=BEGIN + at, lines=lines)

    assert of_rank(gpus_of(store), 0).jobs == {"planted", "beside"}


def test_samples_are_found_in_any_kind_of_store(tmp_path: Path) -> None:
    for store in (Store(str(tmp_path)), Store(f"memory://{tmp_path.name}-samples/prefix")):
        write_job(store, gpu_job([FakeGpu(0)], SECONDS))
        write_samples(store, [FakeGpu(0)], SECONDS)

        assert len(of_rank(gpus_of(store), 0).times) == 25


def test_the_records_node_is_what_counts_not_the_hostname_within_a_pod(tmp_path: Path) -> None:
    store = stored(tmp_path, [FakeGpu(0)])
    inside = records.JobStarted(**envelope(0, host="trainer-0"), world_size=1, pid=1, device="cuda", gpu_uuid=uuid(0))

    assert of_job(store, [inside], steps_at(30.0), {inside.writer: HOST}).by_writer
    assert not of_job(store, [inside], steps_at(30.0), {inside.writer: "trainer-0"}).by_writer


def test_moments_are_whole_samples(tmp_path: Path) -> None:
    """All columns of a table are as long as its times, whatever a GPU told when."""
    store = Store(str(tmp_path))
    write_job(store, gpu_job([FakeGpu(0)], SECONDS))
    for number, at in enumerate(map(float, np.arange(0.0, SECONDS, 15.0))):
        gpu = FakeGpu(0, counters=number % 2 == 0, gauges=use(sm=0.5) if number > 5 else {})
        store.write_samples(host=HOST, name=f"{int(BEGIN + at)}-{number}", time=BEGIN + at, lines=sample_lines([gpu], at))

    found = of_rank(gpus_of(store), 0)

    assert {len(values) for values in found.values.values()} == {20}
    assert np.isnan(found.series(GPU_ACTIVE, "sm")).sum() == 6
    assert np.isnan(found.series(GPU_THROTTLED_SECONDS, "power_cap")).sum() == 10
