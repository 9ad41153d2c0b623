"""The life of a job that is read piece by piece is the life of the same job that is read whole, however its records are stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from life_making import NOW, PlantedLife, killed_three_times
from shipping_lives import shipped
from tachoscope_analyzers.attempts import attribution
from tachoscope_analyzers.compaction.days import compact_job
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records import life_records, life_steps
from tachoscope_analyzers.records.life_records import with_life
from tachoscope_analyzers.records.load import from_store
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.report.report import Report
from tachoscope_core.storage.store import GoneObjectError, Store

LONG = [0.5 + 0.01 * (number % 7) for number in range(260)]
"""Steps for several blocks of the least length."""


def restarts_within_a_block() -> PlantedLife:
    return killed_three_times()


def hangs() -> PlantedLife:
    """One hang passes, in the midst of many steps; the second attempt hangs until it is killed."""
    life = PlantedLife()
    life.launcher(0.0, 2000.0, code=1)
    steps = [*LONG[:140], 31.0, *LONG[141:]]
    beats = [(5.0 * number, "forward") for number in range(1, 40)]
    for rank in range(2):
        stuck = {"stopped": {141: 30.0}} if rank else {"blocked": {141: 30.0}}
        end = life.process(rank, steps, start=1.0, begin=2.0, heartbeats=[] if rank else beats, **stuck)  # type: ignore[arg-type]
        life.gone(rank, end + 0.3, start=1.0)
        seen = [(1000.0 + 5.0 * number, "backward") for number in range(60 if rank else 2, 90)]
        life.process(rank, [1.0] * 20, attempt=1, start=990.0, begin=995.0, heartbeats=seen)
        life.gone(rank, 1500.0, attempt=1, start=990.0)
    for number in range(30):
        where = {"forward": {f"train.py:{40 + number % 3} forward": 5}}
        own: dict[str, Any] = {"writer": life.writer(0, 1, 1.0), "rank": 1, "step": 140, "window_seconds": 5.0, "where": where}
        own["signals"] = {records.OTHER_THREADS: 1.0 + number % 2, records.GRADIENT_STEPS: 600.0, "ticks": 40.0}
        life.add(records.Heartbeat, 43.0 + 2.0 * number, **own)
    return life


def a_restore_in_the_midst() -> PlantedLife:
    """Goes back to a checkpoint after 120 of its steps, and reads one within a step."""
    life = PlantedLife()
    life.launcher(0.0, 900.0)
    for rank in range(2):
        end = life.process(rank, [1.0] * 160, start=1.0, begin=2.0, saves={80: "/ckpt/80", 159: "/ckpt/159"})
        own: dict[str, Any] = {"writer": life.writer(0, rank, 1.0), "rank": rank, "reference": "/ckpt/80", "blocking_seconds": 0.4}
        life.add(records.CheckpointRestored, 122.7, **own, step=80)
        life.add(records.JobEnded, end + 1.0, writer=own["writer"], rank=rank, status="left", steps=160)
    return life


def a_late_node_and_missing_steps() -> PlantedLife:
    """Rank 1 is on another node and lacks steps in the middle and at the end; rank 2 recorded no step."""
    life = PlantedLife()
    life.launcher(0.0, 900.0, code=1)
    life.process(0, LONG, start=1.0, begin=2.0, world=3)
    life.process(1, LONG[:180], start=1.0, begin=2.5, world=3, host="node-1")
    life.process(2, [], start=1.0, begin=2.0, world=3)
    missing = {("rank-0-1-1.0", step) for step in range(104, 112)}
    life.rows = [row for row in life.rows if not isinstance(row, records.StepDone) or (row.writer, row.step) not in missing]
    return life


def two_writers_of_a_rank() -> PlantedLife:
    """Two processes say that they are rank 0 at once, and a third one after them."""
    life = PlantedLife()
    life.launcher(0.0, 200.0)
    life.process(0, [1.0] * 40, world=1, start=1.0, begin=5.0, left=46.0)
    life.process(0, [1.0] * 35, world=1, start=1.5, begin=6.0, left=45.0)
    life.process(0, [1.0] * 30, world=1, start=100.0, begin=105.0, left=136.0)
    return life


def impossible_steps() -> PlantedLife:
    """Some steps are longer than their phases, lie in the future, or overlap others."""
    life = PlantedLife()
    life.launcher(0.0, 100.0)
    for rank in range(2):
        life.process(rank, [1.0] * 60, start=1.0, begin=2.0, left=63.0)
    own: dict[str, Any] = {"writer": life.writer(0, 0, 1.0), "rank": 0, "phase_seconds": {"forward": 1.0}}
    life.add(records.StepDone, 20.0, **own, step=30, wall_seconds=1.0)
    life.add(records.StepDone, 70.0, **own, step=61, wall_seconds=5.0)
    life.add(records.StepDone, 71.0, **own, step=5_000_000, wall_seconds=1.0)
    life.add(records.StepDone, 72.0, **own, step=62, wall_seconds=1.005)
    return life


LIVES: list[Callable[[], PlantedLife]] = [
    restarts_within_a_block,
    hangs,
    a_restore_in_the_midst,
    a_late_node_and_missing_steps,
    two_writers_of_a_rank,
    impossible_steps,
]


@pytest.fixture(params=LIVES, ids=lambda life: life.__name__)
def life(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> PlantedLife:
    monkeypatch.setattr(attribution, "BLOCK_CELLS", 1)
    monkeypatch.setattr(attribution, "LEAST_STEPS", 100)
    made: PlantedLife = request.param()
    return made


def whole(store: Store) -> Report:
    return analyze_life(from_store(store, "planted"), now=NOW)


def in_pieces(store: Store) -> Report:
    return with_life(store, "planted", lambda life: analyze_life(life, now=NOW))


def assert_alike(one: Report, other: Report) -> None:
    for place, (a, b) in enumerate(zip(_leaves(msgspec.to_builtins(one)), _leaves(msgspec.to_builtins(other)), strict=True)):
        assert b == (pytest.approx(a, rel=1e-9, abs=1e-9) if isinstance(a, float) else a), place


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


@pytest.mark.bar(but=("hangs", "restarts_within_a_block"))
def test_a_life_read_in_pieces_is_that_read_whole_before_and_after_compaction(life: PlantedLife, tmp_path: Path) -> None:
    store = shipped(life, tmp_path)
    read_whole = whole(store)

    assert_alike(in_pieces(store), read_whole)
    compact_job(store, "planted", now=time.time())
    assert_alike(in_pieces(store), read_whole)


def test_so_it_is_where_segments_come_in_any_order_and_more_than_once(life: PlantedLife, tmp_path: Path) -> None:
    store = shipped(life, tmp_path, shuffled=True, twice=True)
    read_whole = whole(store)
    assert read_whole.sources[0].duplicates > 0

    assert_alike(in_pieces(store), read_whole)
    compact_job(store, "planted", now=time.time())
    assert_alike(in_pieces(store), read_whole)


@pytest.mark.bar(but=("hangs", "a_late_node_and_missing_steps"))
def test_the_order_of_many_steps_is_examined_some_processes_at_a_time(
    life: PlantedLife, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shipped(life, tmp_path, shuffled=True, twice=True)
    monkeypatch.setattr(life_steps, "_MOST_UNTANGLED", 1)
    monkeypatch.setattr(life_steps, "_MOST_KEPT", 0)

    assert_alike(in_pieces(store), whole(store))


def test_a_job_that_is_compacted_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    store = shipped(killed_three_times(), tmp_path)
    read_whole, readings = whole(store), []

    def analysis(life: life_records.LifeRecords) -> Report:
        readings.append(life)
        if len(readings) == 1:
            compact_job(store, "planted", now=time.time())
        return analyze_life(life, now=NOW)

    assert_alike(with_life(store, "planted", analysis), read_whole)
    assert len(readings) == 2


def test_an_object_that_cannot_be_read_costs_its_own_records_and_is_counted(tmp_path: Path) -> None:
    store = shipped(killed_three_times(), tmp_path)
    Path(list(store.segments("planted"))[3].path).write_bytes(b"damaged")

    found = in_pieces(store)

    assert found.sources[0].broken_objects == 1
    assert_alike(found, whole(store))


def test_a_job_without_records_is_the_same_error_as_ever(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match="no records of job 'planted'.*store ls"):
        in_pieces(Store(str(tmp_path)))


def test_an_analysis_that_finds_objects_gone_each_time_ends_with_that_error(tmp_path: Path) -> None:
    store = shipped(killed_three_times(), tmp_path)

    def analysis(_: life_records.LifeRecords) -> Report:
        raise GoneObjectError("gone")

    with pytest.raises(GoneObjectError):
        with_life(store, "planted", analysis)


def test_both_parts_of_the_work_say_how_far_they_are(tmp_path: Path) -> None:
    store = shipped(killed_three_times(), tmp_path)
    read: list[float] = []
    attributed: list[float] = []

    with_life(store, "planted", lambda life: analyze_life(life, now=NOW, progress=attributed.append), progress=read.append)

    for parts in (read, attributed):
        assert parts == sorted(parts) and parts[-1] == pytest.approx(1.0)


def test_what_is_known_of_steps_and_heartbeats_is_that_of_the_records_read_whole(life: PlantedLife, tmp_path: Path) -> None:
    store = shipped(life, tmp_path, shuffled=True, twice=True)
    read, expected = life_records.of_store(store, "planted"), life_records.of_job(from_store(store, "planted"))
    one = next(iter(read.steps.counts))
    own = expected.steps.between([one], 0, 1 << 40)[one]
    times = [*own.column("monotonic_ns")[[0, len(own) // 2, -1]].tolist(), 1e18]

    assert (read.steps.counts, read.steps.parts) == (expected.steps.counts, expected.steps.parts)
    for writers in (read.steps.counts.keys(), {one}):
        assert read.steps.median_seconds(writers) == expected.steps.median_seconds(writers)
    assert [_last_ended(read, one, at) for at in times] == [_last_ended(expected, one, at) for at in times]
    assert read.heartbeats.together() == expected.heartbeats.together()
    for writer in expected.heartbeats.together():
        assert read.heartbeats.usual_window(writer) == expected.heartbeats.usual_window(writer)


def _last_ended(life: life_records.LifeRecords, writer: str, monotonic_ns: float) -> int:
    steps = life.steps.about(writer, monotonic_ns)
    return int(steps.column("step")[steps.column("monotonic_ns") <= monotonic_ns].max(initial=0))


def test_heartbeats_are_read_again_of_the_times_that_are_asked_for(tmp_path: Path) -> None:
    store = shipped(hangs(), tmp_path, shuffled=True)
    beats = from_store(store, "planted").heartbeats
    begin, end = beats[20].monotonic_ns, beats[40].monotonic_ns
    wanted = [beat for beat in beats if beat.writer == beats[20].writer and begin <= beat.monotonic_ns <= end + 5e9]

    found = life_records.of_store(store, "planted").heartbeats.within({beats[20].writer: [(begin, end)]})[beats[20].writer]

    assert 20 < len(wanted) < len(beats) / 4
    assert [(one.monotonic_ns, one.phase, one.window_seconds, one.where) for one in found] == [
        (beat.monotonic_ns, beat.phase, beat.window_seconds, beat.where)
        for beat in sorted(wanted, key=lambda beat: (beat.monotonic_ns, beat.seq))
    ]


def test_a_hang_in_a_life_read_in_pieces_is_named_with_the_line_of_code(tmp_path: Path) -> None:
    report = in_pieces(shipped(hangs(), tmp_path))

    (hang,) = [one for one in report.findings if one.class_ == "hang"]
    assert any("at train.py:4" in one.signal for one in hang.evidence)
    assert report.life is not None
    assert [one.ended for one in report.life.attempts] == ["killed", "hung"]
