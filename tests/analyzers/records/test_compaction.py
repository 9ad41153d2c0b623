"""Compaction never changes what readers see, even if it is killed or runs beside agents, readers and other compactions."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from making import beat, envelope, moved
from processes import free_port, s3_environment, s3_server
from tachoscope_analyzers.compaction import days, set_in_making
from tachoscope_analyzers.compaction.days import compact_job
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import JobRecords, from_store
from tachoscope_analyzers.records.parquet_groups import MOST_GROUP_ROWS, Wanted, read_lines
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.storage.compacted import FORM, all_segments, compacted_sets, last_attempt, segments_left
from tachoscope_core.storage.store import Store

JOB, RANKS, STEPS = "planted", 3, 40
DAY = 86400.0
BEGIN = 1.7e9 - 1.7e9 % DAY + DAY - 40.0  # the last 40 steps of one day, and what follows in the next
FORM_1 = Path(__file__).parents[2] / "fixtures" / "compacted_form_1"
"""A store that was compacted before there were columns of heartbeats and of differences: the first day of `ship`."""
WRITERS = [f"0000000{rank}-0000-4000-8000-000000000000" for rank in range(RANKS)]


def lines_of(rank: int, first: int, last: int) -> list[bytes]:
    """Return what a rank wrote in some of its steps, each a second long; rank 1 waits for its data."""
    chance = random.Random(rank)
    rows: list[records.Record] = []
    for step in range(first, last):
        data = round(0.05 + 0.001 * chance.random() + 0.2 * (rank == 1), 9)
        phases = {"data_wait": data, "forward": 0.3, "backward": round(0.7 - data, 9)}
        place = {"time": BEGIN + step + 0.25 * chance.random(), "monotonic_ns": (step + 100) * 10**9}
        rows.append(records.StepDone(**envelope(rank, step + 1, **place), step=step + 1, wall_seconds=1.0, phase_seconds=phases))
        if step % 10 == 5:
            rows.append(beat(rank, 10_000 + step, time=BEGIN + step, where={"data_wait": {"train.py:7 load": 3}}))
            rows.append(moved(rank, "all_reduce", 20_000 + step, time=BEGIN + step, step=step, seconds=0.1))
    found = list(map(records.encode, rows))
    if first == 0:
        start = records.JobStarted(**envelope(rank, 0, time=BEGIN, monotonic_ns=99 * 10**9), world_size=RANKS, pid=1)
        found.insert(0, records.encode(start))
    return found


def ship(store: Store, steps: int = 2 * STEPS, a_segment: int = 10) -> None:
    """Write the segments of all ranks: one in a minute of the store's, long ago."""
    for rank, writer in enumerate(WRITERS):
        for first in range(0, steps, a_segment):
            content = lines_of(rank, first, first + a_segment)
            write(store, writer, first, content, BEGIN + first)


def write(store: Store, writer: str, offset: int, lines: list[bytes], at: float, written: float | None = None) -> None:
    path = store.write(JOB, host="node-1", writer=writer, attempt=0, offset=offset, time=at, lines=b"".join(lines))
    if store.local:
        os.utime(path, (written or at + 10, written or at + 10))


def read(store: Store) -> tuple[JobRecords, bytes]:
    job = from_store(store, JOB)
    return job, msgspec.json.encode(analyze(job))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(str(tmp_path))
    ship(store)
    return store


def test_records_and_report_are_the_same_before_and_after(store: Store) -> None:
    before = read(store)

    done = compact_job(store, JOB, now=time.time())

    assert (done.segments, done.sets) == (RANKS * 8, 2), "a set for each day"
    assert read(store) == before
    assert list(store.segments(JOB)) == []
    assert last_attempt(store, JOB) == 0 and len(all_segments(store, JOB)) == RANKS * 8
    assert compact_job(store, JOB, now=time.time()).sets == 0, "nothing is left to do"


def test_what_columns_cannot_hold_stays_as_it_was_written(store: Store) -> None:
    odd = records.StepDone(**envelope(0, 900, time=BEGIN + 90), step=900, wall_seconds=1 / 3, phase_seconds={"new phase": 1 / 3})
    newer = records.encode(odd).replace(b'"step":900', b'"step":901,"mood":"good"').replace(b'"seq":900', b'"seq":901')
    cut = records.encode(odd)[:-30]
    beats = [records.encode(beat(0, 950 + place, time=BEGIN + 90, signals={"ticks": place})) for place in range(3)]
    newer_beat = beats[0].replace(b'"signals":{', b'"mood":"good","signals":{')
    other_signal = beats[1].replace(b'"signals":{', b'"signals":{"as_no_beat_before":0.1,')
    no_beat = beats[2].replace(b'"signals":{', b'"where":{"forward":["of another type"]},"signals":{')
    rows = [records.encode(odd), b'{"kind":"Later"}\n', b"\xff\x00 garbage\n", newer, newer_beat, other_signal, no_beat]
    write(store, WRITERS[0], 500, [*rows, cut], BEGIN + 90)
    before = from_store(store, JOB)
    assert (before.source.unknown_kinds, before.source.garbage_lines, before.source.cut_lines) == (1, 2, 1)

    compact_job(store, JOB, now=time.time())

    assert from_store(store, JOB) == before
    kept = [line for one in compacted_sets(store, JOB) for path in one.line_paths for line in store.read_lines(path).splitlines()]
    assert {b'{"kind":"Later"}', b"\xff\x00 garbage", no_beat.strip(), cut} <= set(kept)
    with store.files.open(compacted_sets(store, JOB)[-1].measured_path) as file:
        lines = b"".join(read_lines(file, Wanted()))
    assert newer in lines and newer_beat in lines, "with the field that only a newer version knows"


def test_a_set_of_the_first_form_is_read_as_the_segments_that_it_was_made_of(tmp_path: Path) -> None:
    ship(store := Store(str(tmp_path)), STEPS)

    found, plain = from_store(Store(str(FORM_1)), JOB), from_store(store, JOB)

    assert compacted_sets(Store(str(FORM_1)), JOB)[0].holds.form == 1
    assert replace(found, source=plain.source) == plain
    assert found.source.records == plain.source.records


def test_a_set_of_a_newer_form_is_refused_and_not_misread(store: Store) -> None:
    compact_job(store, JOB, now=time.time())
    path = Path(compacted_sets(store, JOB)[0].list_path)
    holds = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps(holds | {"form": FORM + 1}).encode()))

    with pytest.raises(TachoscopeError, match="newer version"):
        from_store(store, JOB)


def test_the_day_of_a_running_job_stays_as_it_is_and_a_job_at_rest_is_compacted_to_its_end(store: Store) -> None:
    now = BEGIN + 2 * STEPS + 60
    before = read(store)

    assert compact_job(store, JOB, now=now, at_rest_seconds=30.0).sets == 2, "at rest"
    assert compact_job(store, JOB, now=now).sets == 0
    assert read(store) == before


def test_days_that_are_over_are_compacted_while_a_job_runs(store: Store) -> None:
    before = read(store)
    now = BEGIN + 2 * STEPS + 3700.0
    write(store, WRITERS[0], 900, lines_of(0, 80, 90), BEGIN + 80, written=now - 1.0)

    assert compact_job(store, JOB, now=now).sets == 1
    left, _, sets = segments_left(store, JOB)
    assert len(left) == RANKS * 4 + 1 and len(sets) == 1
    os.unlink(next(one.path for one in left if one.offset == 900))
    assert read(store) == before


class Died(BaseException):
    """As if the process were killed."""


def test_killed_at_any_point_nothing_is_lost_or_twice_and_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(days, "MOST_STEPS", 50)
    monkeypatch.setattr(set_in_making, "GROUP_BYTES", 10_000)  # some groups in a file
    ship(store := Store(str(tmp_path / "store")), a_segment=20)
    before = from_store(store, JOB)  # whose report is a function of it
    shutil.copytree(tmp_path / "store", tmp_path / "shipped")
    for point in range(1000):
        shutil.rmtree(tmp_path / "store")
        store = Store(str(shutil.copytree(tmp_path / "shipped", tmp_path / "store")))
        with monkeypatch.context() as patch:
            _die_after(patch, store, point)
            try:
                compact_job(store, JOB, now=time.time())
            except Died:
                pass
            else:
                break
        assert from_store(store, JOB) == before, point
        compact_job(store, JOB, now=time.time() + 7200)  # later than what it left lying counts as another's work
        assert from_store(store, JOB) == before and list(store.segments(JOB)) == [], point
        sets = compacted_sets(store, JOB)
        listed = {
            path
            for one in sets
            for path in (one.list_path, one.steps_path, one.measured_path, one.heartbeats_path, *one.line_paths)
        }
        assert set(store.files.find(f"{store.root}/jobs/{JOB}/compacted")) <= listed, "no strays"
    assert point > 20


def _die_after(patch: pytest.MonkeyPatch, store: Store, operations: int) -> None:
    left = [operations]
    for name in ("pipe_file", "rm_file"):
        real = getattr(store.files, name)

        def dying(*args: Any, real: Any = real, **more: Any) -> Any:
            if not left[0]:
                raise Died
            left[0] -= 1
            return real(*args, **more)

        patch.setattr(store.files, name, dying)


def test_a_segment_that_an_agent_ships_again_counts_once(store: Store) -> None:
    before = read(store)
    compact_job(store, JOB, now=time.time())

    write(store, WRITERS[1], 0, lines_of(1, 0, 10), BEGIN)

    assert read(store) == before
    assert compact_job(store, JOB, now=time.time()).sets == 0
    assert list(store.segments(JOB)) == []


def test_records_that_come_late_make_a_set_of_their_own(store: Store) -> None:
    compact_job(store, JOB, now=time.time())
    late = lines_of(2, 80, 90)
    write(store, WRITERS[2], 777, late, BEGIN + 20)

    assert compact_job(store, JOB, now=time.time()).sets == 1
    assert len(compacted_sets(store, JOB)) == 3
    assert len(from_store(store, JOB).steps) == RANKS * 2 * STEPS + 10


def test_a_reader_whose_objects_are_compacted_meanwhile_reads_them_from_the_set(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read(store)
    other, reads = Store(store.url), [0]
    real = Store.read_lines

    def compacted_meanwhile(self: Store, path: str) -> bytes:
        reads[0] += 1
        if reads[0] == 5:
            compact_job(other, JOB, now=time.time())
        return real(self, path)

    monkeypatch.setattr(Store, "read_lines", compacted_meanwhile)

    assert from_store(store, JOB) == before[0]


@pytest.mark.parametrize("read_before", [1, 5, 12])
def test_two_compactions_at_once_make_one_set_of_each_day(store: Store, monkeypatch: pytest.MonkeyPatch, read_before: int) -> None:
    before = read(store)
    other, reads, real = Store(store.url), [0], Store.read

    def with_another(self: Store, segment: Any) -> bytes:
        reads[0] += 1
        if reads[0] == read_before:
            compact_job(other, JOB, now=time.time(), at_rest_seconds=0.001)
        return real(self, segment)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "read", with_another)
        compact_job(store, JOB, now=time.time(), at_rest_seconds=0.001)

    assert read(store) == before
    assert sum(one.holds.steps for one in compacted_sets(store, JOB)) == RANKS * 2 * STEPS
    assert list(store.segments(JOB)) == []


def test_an_object_that_cannot_be_read_is_left_and_counted_as_before(store: Store) -> None:
    broken = next(iter(store.segments(JOB))).path
    Path(broken).write_bytes(b"no gzip")
    os.utime(broken, (BEGIN, BEGIN))
    before = from_store(store, JOB)
    assert before.source.broken_objects == 1

    assert len(compact_job(store, JOB, now=time.time()).broken) == 1
    assert from_store(store, JOB) == before
    assert [one.path for one in store.segments(JOB)] == [broken]


@pytest.mark.parametrize("suffix", [".steps.parquet", ".heartbeats.parquet", ".measured.parquet"])
def test_a_broken_set_costs_its_own_records_and_is_counted(store: Store, suffix: str) -> None:
    before = from_store(store, JOB)
    compact_job(store, JOB, now=time.time())
    first = compacted_sets(store, JOB)[0]
    Path(first.path + suffix).write_bytes(b"PAR1 is not all of it PAR1")

    found = from_store(store, JOB)

    assert found.source.broken_objects == 1
    assert 0 < found.source.records < before.source.records
    assert found.starts == before.starts


def test_an_object_of_a_set_that_is_gone_costs_its_own_records_and_is_counted(store: Store) -> None:
    compact_job(store, JOB, now=time.time())
    Path(compacted_sets(store, JOB)[0].steps_path).unlink()

    found = from_store(store, JOB)

    assert found.source.broken_objects == 1 and "steps.parquet" in found.broken[0]
    assert found.steps and len(found.starts) == RANKS


@pytest.mark.parametrize("bomb", ["rows", "dictionary"])
def test_a_small_file_that_unpacks_to_all_memory_is_refused_before_it_is_unpacked(store: Store, bomb: str) -> None:
    compact_job(store, JOB, now=time.time())
    path = Path(compacted_sets(store, JOB)[0].measured_path)
    count = MOST_GROUP_ROWS + 1 if bomb == "rows" else 50
    lines = [b"x" * (1 if bomb == "rows" else 1 << 20)] * count
    table = pa.table({"time": pa.array([BEGIN] * count), "line": pa.array(lines, pa.binary())})
    pq.write_table(table, path, row_group_size=count, use_dictionary=["line"] if bomb == "dictionary" else False)
    assert path.stat().st_size < 3 << 20

    with path.open("rb") as file, pytest.raises(ValueError, match="too large|dictionary"):
        next(read_lines(file, Wanted()))


def test_a_broken_list_is_a_clear_error_and_no_job_without_records(store: Store) -> None:
    compact_job(store, JOB, now=time.time())
    path = Path(compacted_sets(store, JOB)[0].list_path)
    holds = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps(holds | {"line_objects": 10**9}).encode()))
    with pytest.raises(TachoscopeError, match="line_objects"):
        from_store(store, JOB)
    path.write_bytes(b"{}")

    with pytest.raises(TachoscopeError, match=r"could not read .*\.json\.gz"):
        from_store(store, JOB)


def test_of_a_window_only_what_may_be_in_it_is_read(store: Store) -> None:
    whole = from_store(store, JOB)
    start, end = BEGIN + STEPS + 10.0, BEGIN + STEPS + 30.0

    for _ in ("segments", "sets"):
        found = from_store(store, JOB, start=start, end=end)
        wanted = [step for step in whole.steps if start <= step.time <= end]
        assert [step for step in found.steps if start <= step.time <= end] == wanted
        assert len(found.steps) < len(whole.steps)
        assert found.starts == whole.starts
        compact_job(store, JOB, now=time.time())


def test_the_ends_of_a_compacted_job_tell_how_it_stands(store: Store) -> None:
    written = store.job_times()[JOB]
    compact_job(store, JOB, now=time.time())

    found = from_store(store, JOB, ends_only=True)

    assert found.partial and len(found.starts) == RANKS
    assert max(step.step for step in found.steps) == 2 * STEPS
    assert store.job_times()[JOB] == pytest.approx(written, abs=1.0), "not when it was compacted"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    port = free_port()
    for name, value in s3_environment(port).items():
        monkeypatch.setenv(name, value)
    with s3_server(port):
        yield Store("s3://bucket/fleet")


def test_an_object_store_is_compacted_as_a_directory_is(s3: Store) -> None:
    ship(s3, a_segment=40)
    before = read(s3)

    done = compact_job(s3, JOB, now=time.time() + 7200)

    assert (done.segments, done.sets) == (RANKS * 2, 2)
    assert read(s3) == before
    assert list(s3.segments(JOB)) == []


KILLS, OF_ONE_STORE = 100, 5


@pytest.mark.bar
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_killed_a_hundred_times_at_random_while_agents_ship_nothing_is_lost_or_twice(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(days, "MOST_STEPS", 50)
    monkeypatch.setattr(set_in_making, "GROUP_BYTES", 1)
    root = str(tmp_path) if kind == "directory" else request.getfixturevalue("s3").url
    chance, kills, seconds = random.Random(kind), 0, 1.0
    while kills < KILLS:
        store, plain = Store(f"{root}/{kills}"), Store(str(tmp_path / f"plain-{kills}"))
        for part in range(OF_ONE_STORE + 1):
            for each in (store, plain):
                for rank, writer in enumerate(WRITERS):
                    for first in range(part * 20, part * 20 + 20, 5):
                        write(each, writer, first, lines_of(rank, first, first + 5), BEGIN + first)
            began = time.monotonic()
            child = multiprocessing.get_context("fork").Process(target=_compact_whole, args=(store.url,))
            child.start()
            child.join(chance.uniform(0, seconds) if part < OF_ONE_STORE else None)
            if child.is_alive():
                child.kill()
                child.join()
                kills += 1
            else:
                assert child.exitcode == 0
                seconds = time.monotonic() - began
            assert _content(store) == _content(plain), (kills, part)
        assert list(store.segments(JOB)) == []


def _compact_whole(url: str) -> None:
    compact_job(Store(url), JOB, now=time.time() + 7200)


def _content(store: Store) -> JobRecords:
    job = from_store(store, JOB)
    return replace(job, source=msgspec.structs.replace(job.source, path=""))


def test_steps_take_less_than_a_twelfth_of_their_lines(tmp_path: Path) -> None:
    chance = random.Random(1)
    store = Store(str(tmp_path))
    rows = []
    for step in range(3000):  # as a real probe reads them: whole nanoseconds, which differ from step to step
        phases = {name: round(mean * (1 + 0.02 * chance.gauss(0, 1)), 9) for name, mean in MEANS.items()}
        cpu = {name: round(value * (1 - 0.01 * chance.random()), 9) for name, value in phases.items()}
        wall = round(sum(phases.values()), 9)
        place = {"time": BEGIN + 0.18 * step + 1e-4 * chance.random(), "monotonic_ns": round(1.8e8 * step + 1e5 * chance.random())}
        delay = {"step": round(0.001 * chance.random(), 9), "backward": round(0.0005 * chance.random(), 9)}
        more = {"samples": 32, "elements": 327680}
        seconds: Any = {"wall_seconds": wall, "phase_seconds": phases, "cpu_seconds": cpu, "run_delay_seconds": delay}
        rows.append(records.encode(records.StepDone(**envelope(0, step, **place), step=step + 1, **seconds, **more)))
    write(store, WRITERS[0], 0, rows, BEGIN)

    done = compact_job(store, JOB, now=time.time())

    assert done.stored_bytes / done.json_bytes < 0.08


MEANS = {"data_wait": 0.0013, "forward": 0.065, "backward": 0.11, "optimizer": 0.0002, "other": 0.0001}
