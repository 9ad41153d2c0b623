"""Odd records, each of them valid: whatever they hold, every analyzer has a report or an error with a way out."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from life_making import NOW, T0, PlantedLife
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records import load
from tachoscope_analyzers.serving.report.from_service import analyze_service
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.report.report import Report
from tachoscope_core.storage import spool
from tachoscope_core.storage.store import Store
from tachoscope_show.report import html as render_html
from tachoscope_show.report import text as render_text
from tachoscope_watch.judge_job import judge_job

WRITER = "00000000-0000-4000-8000-000000000000"


def training() -> list[records.Record]:
    """Return the records of a job of two ranks that failed once, with a record of every kind."""
    life = PlantedLife("odd")
    life.launcher(0.0, 100.0)
    for rank in range(2):
        life.process(rank, [1.0] * 12, start=1.0, begin=5.0, saves={5: "/ckpt/5"}, heartbeats=[(9.0, "forward")])
        life.gone(rank, 18.0, start=1.0)
        life.process(rank, [1.0] * 12, attempt=1, start=40.0, begin=50.0, restored=("/ckpt/5", 42.0, 3.0), left=82.0)
    own: dict[str, Any] = {"writer": life.writer(1, 0, 40.0), "rank": 0, "attempt": 1}
    counts = {"data_wait": {"cpu": 3, "disk": 2}}
    life.add(
        records.Heartbeat,
        60.0,
        **own,
        step=9,
        phase="forward",
        window_seconds=5.0,
        signals={"workers": 2.0, "worker_cpu_seconds": 1.0, "cores": 4.0, "rss_bytes": 1e9},
        wait_samples=counts,
        where={"data_wait": {"train.py:3 get_batch": 4}},
        activity={"loss": {"loss sleep": 2}},
        loader=records.LoaderSettings(workers=2),
    )
    life.add(records.CollectiveDone, 60.1, **own, collective="all_reduce", size_class="<=64KiB", count=3, bytes=9, seconds=0.1)
    shards = [records.ShardSum(path="", bytes=3, checksum="sha256:00")]
    life.add(records.CheckpointManifest, 60.2, **own, step=5, reference="/ckpt/5", shards=shards)
    life.add(records.CheckpointVerified, 60.3, writer="agent", attempt=1, step=5, reference="/ckpt/5")
    life.add(records.ShardRead, 60.4, **own, shard="/data/1", bytes=9, seconds=0.1)
    life.add(records.ShardFailed, 60.5, **own, shard="/data/1", error="OSError")
    life.add(records.IntegrityEvent, 60.6, **own, step=5, check="parameters", checksum="00", replicas=[0, 1])
    life.add(records.UpdatesApplied, 60.7, **own, staleness={0: 3, 2: 1}, bound=2)
    life.add(records.WorkerHung, 60.8, writer="agent", attempt=1, failed_rank=0, since_time=T0 + 55.0, step=5, why="no step")
    life.add(records.PreemptionNotice, 60.9, writer="agent", attempt=1, source="sigterm")
    life.add(records.ShardQuarantined, 61.0, writer="agent", attempt=1, shard="/data/1", failures=2, ranks=[0])
    life.add(records.TraceCaptured, 61.1, **own, reference="traces/a", bytes=9, first_step=3, last_step=5)
    return life.rows


def service() -> list[records.Record]:
    """Return the records of a service with one engine."""
    life = PlantedLife("odd")
    own: dict[str, Any] = {"writer": "server", "rank": 0}
    life.add(records.ServiceStarted, 0.0, **own, pid=1, model="m")
    for number in range(20):
        life.add(
            records.RequestDone,
            1.0 + number,
            **own,
            request=str(number),
            wall_seconds=1.0,
            phase_seconds={"queued": 0.2, "prefill": 0.3, "decode": 0.5},
            outcome="ok",
            status=200,
            tokens_in=5,
            tokens_out=3,
            first_token_seconds=0.5,
            inter_token_seconds=0.5,
            inter_token_count=2,
            inter_token_buckets=[1, 1],
        )
        states = {"busy": 0.6, "idle": 0.4}
        life.add(records.EngineWindow, 1.0 + number, **own, window_seconds=1.0, state_seconds=states, iterations=9, capacity=4)
    life.add(records.ServiceEnded, 30.0, **own)
    return life.rows


def odd(value: Any) -> Iterator[Any]:
    """Yield other values of the same type, the least and the largest that a record may hold."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (0, -1, 1, 3, records.MAX_COUNT) if isinstance(value, int) else (0.0, 1e-9, 1e3, records.MAX_SECONDS)
    elif isinstance(value, str):
        yield from ("", "<i>unheard of", "x" * 200)
    elif isinstance(value, dict):
        yield {}
        for key, one in value.items():
            yield {"unheard_of": one}
            yield from ({**value, key: changed} for changed in odd(one))
    elif isinstance(value, list):
        yield []
        yield value * 40
        for index, one in enumerate(value):
            yield from ([*value[:index], changed, *value[index + 1 :]] for changed in odd(one))


def streams(rows: list[records.Record]) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the lines of a job with one field of the last record of each kind changed, for each field and odd value."""
    lines = [records.encode(row) for row in rows]
    last = {type(row): index for index, row in enumerate(rows)}
    for kind, index in last.items():
        document = json.loads(lines[index])
        for name, value in document.items():
            if name in {"kind", "job"}:
                continue
            for changed in odd(value):
                line = json.dumps({**document, name: changed}).encode() + b"\n"
                yield f"{kind.__name__}.{name}={str(changed)[:60]}", [*lines[:index], line, *lines[index + 1 :]]


def shown(report: Report) -> None:
    render_html.render(report)
    render_text.render(report, Console(file=io.StringIO(), width=110))


def judged(job: load.JobRecords, *analyzers: Callable[[load.JobRecords], Report]) -> None:
    load.status(job, now=NOW)
    for analyzer in analyzers:
        try:
            report = analyzer(job)
        except TachoscopeError:
            continue
        shown(report)


@pytest.mark.parametrize("rows", [training, service])
def test_no_record_makes_an_analyzer_fail(
    rows: Callable[[], list[records.Record]], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    every = 32 if pytestconfig.getoption("--bar-runs") < 10 else 1  # all of them with the bars
    analyzers = (analyze, lambda job: analyze_life(job, now=NOW)) if rows is training else (analyze_service,)
    file = tmp_path / spool.segment_name(WRITER, 0)
    failed, tried = [], 0
    for what, lines in itertools.islice(streams(rows()), 0, None, every):
        file.write_bytes(b"".join(lines))
        try:
            judged(load.from_spool([file], job="odd"), *analyzers)
        except Exception as error:  # all of them are named
            failed.append(f"{what}: {type(error).__name__}: {error}")
        tried += 1

    assert tried > 200 / every
    assert not failed, f"{len(failed)} of {tried}:\n" + "\n".join(failed[:40])


def test_one_broken_object_costs_the_store_only_that_object(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    for row in training():
        key = {"host": row.host, "writer": WRITER, "attempt": row.attempt, "time": row.time}
        store.write("odd", offset=len(list(store.segments("odd"))), lines=records.encode(row), **key)
    whole = load.from_store(store, "odd")
    broken = Path(next(store.segments("odd")).path)
    for content in (broken.read_bytes()[:-9], b"no gzip", b"", __import__("gzip").compress(b"\n" * (80 << 20))):
        broken.write_bytes(content)
        found = load.from_store(store, "odd")
        assert found.source.records >= whole.source.records - 1
        assert found.source.broken_objects == (content != b"")
        assert judge_job(store, "odd", T0 + 62.0, 600.0) is not None
