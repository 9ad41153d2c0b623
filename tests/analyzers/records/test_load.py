from pathlib import Path

import pytest

from making import envelope, job
from tachoscope.spool.ship import ship
from tachoscope_analyzers.records.load import from_spool, from_store, status
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store

STEP = {"forward": 0.1, "backward": 0.2}
NAME = "00000000-0000-4000-8000-000000000000-000000.jsonl"


def test_the_same_records_twice_count_once(tmp_path: Path) -> None:
    data = job([[STEP]] * 5)
    (tmp_path / NAME).write_bytes(data + data)

    loaded = from_spool([tmp_path])

    assert len(loaded.steps) == 5
    assert loaded.source.duplicates == 6


def test_a_cut_line_garbage_and_unknown_kinds_are_counted_apart(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b'{"kind":"New"}\nnonsense\n\x00\xff\n' + job([[STEP]] * 5)[:-20])

    source = from_spool([tmp_path]).source

    assert (source.unknown_kinds, source.garbage_lines, source.cut_lines) == (1, 2, 1)


@pytest.mark.parametrize("data", [b"", b"garbage\n" * 23])
def test_a_spool_without_records_is_one_clear_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / NAME).write_bytes(data)

    with pytest.raises(TachoscopeError, match="no records in .*tachoscope run"):
        from_spool([tmp_path])


def test_what_went_through_the_store_is_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / NAME).write_bytes(job([[STEP, STEP]] * 23))
    store = Store(str(tmp_path / "store"))
    before = from_spool([tmp_path / "run"])
    ship(tmp_path / "run", store)

    after = from_store(store, "planted")

    assert (after.starts, after.steps) == (before.starts, before.steps)


def test_a_job_that_the_store_lacks_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match="no records of job 'nothing'.*store ls"):
        from_store(Store(str(tmp_path)), "nothing")


def states(tmp_path: Path, *ends: records.JobEnded, now: float = 2e9) -> str:
    (tmp_path / NAME).write_bytes(job([[STEP, STEP]] * 5) + b"".join(map(records.encode, ends)))
    return status(from_spool([tmp_path]), now=now)


def ended(rank: int, **fields: str) -> records.JobEnded:
    return records.JobEnded(**envelope(rank, 99), **fields)  # type: ignore[arg-type]


def test_the_launchers_word_decides_how_a_job_ended(tmp_path: Path) -> None:
    launcher = envelope(records.LAUNCHER_RANK, 99, writer="f0000000-0000-4000-8000-000000000000")

    assert states(tmp_path, ended(0, status="left"), ended(1, status="left")) == "completed"
    assert states(tmp_path, records.JobEnded(**launcher, status="failed"), ended(0, status="left")) == "failed"


def test_a_job_of_which_a_rank_vanished_is_not_called_healthy(tmp_path: Path) -> None:
    assert states(tmp_path, ended(0, status="left")) == "unknown"
    assert states(tmp_path, ended(0, status="left"), now=1.7e9) == "running"
    assert states(tmp_path, ended(0, status="failed")) == "failed"


def test_the_source_of_a_report_does_not_show_the_credentials_of_its_store() -> None:
    store = Store("memory://key:hunter2@bucket/store")
    lines = job([[STEP]] * 2)
    store.write("planted", host="node-1", writer=envelope()["writer"], attempt=0, offset=0, time=1.7e9, lines=lines)
    assert from_store(store, "planted").source.path == "memory://***@bucket/store: jobs/planted"


def test_steps_that_go_back_overlap_or_are_given_out_twice_are_left_out_and_counted(tmp_path: Path) -> None:
    def step(seq: int, number: int, *, end: int, seconds: float = 1.0) -> bytes:
        fields = envelope(seq=seq, monotonic_ns=end * 10**9)
        return records.encode(records.StepDone(**fields, step=number, wall_seconds=seconds, phase_seconds={"forward": seconds}))

    true = [step(number, number, end=number) for number in range(1, 11)]
    false = [
        step(11, 900_000, end=11),
        step(12, 10, end=12),
        step(13, 11, end=5),
        step(14, 12, end=14, seconds=10.0),
        step(15, 13, end=15),
    ]
    (tmp_path / NAME).write_bytes(b"".join([*true, *false]))

    read = from_spool([tmp_path])

    assert [row.step for row in read.steps] == [*range(1, 11), 13]
    assert read.source.implausible == 4
