"""Exports made by the documented schema, https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tachoscope_analyzers.trace.events.launch_links import device_work, enclosing_operators
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_analyzers.trace.reading.trace import Trace
from tachoscope_core.errors import TachoscopeError

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, totalMemory INTEGER, smCount INTEGER,
    computeMajor INTEGER, computeMinor INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER NOT NULL, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL,
    blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL,
    copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL,
    bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL,
    eventId INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, graphId INTEGER NOT NULL,
    graphExecId INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,
    color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
"""


def global_id(process: int, thread: int = 0) -> int:
    return 1 << 48 | process << 24 | thread


class Export:
    """An export under construction; times in ns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = sqlite3.connect(path)
        self.database.executescript(SCHEMA)
        self.texts: dict[str, int] = {}
        self.insert("ENUM_CUDA_MEM_KIND", 0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable")
        self.insert("ENUM_CUDA_MEM_KIND", 2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device")

    def insert(self, table: str, *values: object) -> None:
        self.database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    def text(self, value: str) -> int:
        if value not in self.texts:
            self.texts[value] = len(self.texts) + 1
            self.insert("StringIds", self.texts[value], value)
        return self.texts[value]

    def kernel(
        self, name: str, start: int, end: int, correlation: int, *, process: int = 100, device: int = 0, node: int | None = None
    ) -> None:
        numbers = (self.text(name), self.text("short"), 8, 2, 1, 128, 1, 1, node)
        self.insert("CUPTI_ACTIVITY_KIND_KERNEL", start, end, device, 1, 7, correlation, global_id(process), *numbers)

    def call(self, name: str, start: int, end: int, correlation: int, *, process: int = 100, thread: int = 101) -> None:
        self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", start, end, 0, global_id(process, thread), correlation, self.text(name), 0, None)

    def range(
        self, name: str | None, start: int, end: int | None, *, text_id: int | None = None, kind: int = 59, thread: int = 101
    ) -> None:
        self.insert("NVTX_EVENTS", start, end, kind, None, None, None, name, global_id(100, thread), None, text_id, 0)

    def read(self) -> Trace:
        self.database.commit()
        self.database.close()
        return read(self.path)


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "report.sqlite")


def spans(trace: Trace, kind: Kind) -> list[tuple[str, int, int]]:
    rows = (trace.kind == kind).nonzero()[0]
    return list(zip(trace.names(rows).tolist(), trace.start[rows].tolist(), trace.end[rows].tolist(), strict=True))


def test_everything_comes_back_with_its_kind_and_nanoseconds(export: Export) -> None:
    export.kernel("void gemm<float>(int)", 1_000_000_000_123, 1_000_000_000_456, 5)
    export.call("cudaLaunchKernel_v7000", 999_999_999_001, 999_999_999_877, 5)
    export.call("cuLaunchKernelEx", 999_999_999_101, 999_999_999_201, 5)
    export.insert("CUPTI_ACTIVITY_KIND_MEMCPY", 2001, 2003, 0, 1, 9, 6, global_id(100), 4096, 1, 0, 2, None)
    export.insert("CUPTI_ACTIVITY_KIND_MEMSET", 3001, 3007, 0, 1, 7, 7, global_id(100), 0, 512, None, 2)
    export.insert("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", 4001, 4009, 0, 1, 7, 8, global_id(100), 3, 0)
    export.insert("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 5001, 5011, 0, 1, 7, 9, global_id(100), 1, 2)
    export.range("forward", 10, 20)
    export.range(None, 30, 40, text_id=export.text("by number"), kind=60)
    trace = export.read()
    assert spans(trace, Kind.KERNEL) == [
        ("void gemm<float>(int)", 1_000_000_000_123, 1_000_000_000_456),
        ("CUDA graph", 5001, 5011),
    ]
    assert spans(trace, Kind.RUNTIME) == [
        ("cudaLaunchKernel", 999_999_999_001, 999_999_999_877),
        ("cuLaunchKernelEx", 999_999_999_101, 999_999_999_201),
    ]
    assert spans(trace, Kind.MEMCPY) == [("Memcpy HtoD (Pageable -> Device)", 2001, 2003)]
    assert spans(trace, Kind.MEMSET) == [("Memset (Device)", 3001, 3007)]
    assert spans(trace, Kind.SYNC) == [("Stream Sync", 4001, 4009)]
    assert spans(trace, Kind.ANNOTATION) == [("forward", 10, 20), ("by number", 30, 40)]
    assert trace.device["bytes"].tolist() == [-1, 4096, 512, -1, -1]
    assert trace.strings[trace.device["grid"][0]] == "[8, 2, 1]"
    assert trace.strings[trace.device["block"][0]] == "[128, 1, 1]"
    assert trace.meta.writer == "nsight"


def test_kernels_are_linked_to_their_calls_and_calls_to_their_ranges(export: Export) -> None:
    export.range("step", 0, 10_000)
    export.range("forward", 100, 5000)
    for number in range(23):
        export.call("cudaLaunchKernel_v7000", 200 + number * 10, 205 + number * 10, number)
        export.kernel(f"kernel {number}", 1000 + number * 100, 1050 + number * 100, number, node=number)
    trace = export.read()
    work = device_work(trace)
    assert trace.names(work.row).tolist() == [f"kernel {number}" for number in range(23)]
    assert trace.start[work.launch].tolist() == [200 + number * 10 for number in range(23)]
    assert set(trace.names(enclosing_operators(trace)[work.launch]).tolist()) == {"forward"}
    assert trace.device["graph_node"].tolist() == list(range(23))


def test_two_processes_that_count_alike_are_kept_apart(export: Export) -> None:
    export.insert("TARGET_INFO_CUDA_DEVICE", 1, 0, 100)
    export.insert("TARGET_INFO_CUDA_DEVICE", 0, 0, 200)
    for process in (100, 200):
        export.call("cudaLaunchKernel_v7000", process, process + 5, 1, process=process)
        export.kernel(f"of {process}", 1000 + process, 2000, 1, process=process, device=0)
    trace = export.read()
    work = device_work(trace)
    assert (work.launch >= 0).all()
    found = zip(trace.names(work.row).tolist(), work.device.tolist(), trace.start[work.launch].tolist(), strict=True)
    assert set(found) == {("of 100", 1, 100), ("of 200", 0, 200)}


def test_the_machine_is_described(export: Export) -> None:
    export.insert("TARGET_INFO_GPU", 0, 1, "NVIDIA H200", 141 << 30, 132, 9, 0)
    export.insert("TARGET_INFO_SESSION_START_TIME", 1_713_219_600_123_456_789, None, None)
    export.kernel("k", 1, 2, 3)
    meta = export.read().meta
    (device,) = meta.devices
    assert (device.id, device.name, device.memory_bytes, device.multiprocessors) == (1, "NVIDIA H200", 141 << 30, 132)
    assert device.compute_capability == "9.0"
    assert meta.base_nanoseconds == 1_713_219_600_123_456_789


def test_marks_and_open_ranges_are_no_spans(export: Export) -> None:
    export.range("mark", 5, None, kind=34)
    export.range("never closed", 5, None)
    export.range("thread name", 5, 6, kind=75)
    export.range("good", 5, 6)
    trace = export.read()
    assert spans(trace, Kind.ANNOTATION) == [("good", 5, 6)]
    assert trace.meta.quality.counts["flows_and_others_skipped"] == 3


def test_an_old_export_without_most_tables_and_columns_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES (1, 'gemm');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, shortName INT, correlationId INT);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 200, 1, 4), (300, 350, 99, 5);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, correlationId INT, globalTid INT);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (50, 60, 4, 16777217);
            """
        )
    trace = read(path)
    work = device_work(trace)
    assert spans(trace, Kind.KERNEL) == [("gemm", 100, 200), ("", 300, 350)]
    assert trace.start[work.launch[work.launch >= 0]].tolist() == [50]


def test_values_of_other_types_cost_only_themselves(export: Export) -> None:
    export.kernel("good", 10, 20, 1)
    for start, end in (("x", 5), (b"\0", 5), (1.5, 5), (5, "y"), (5, 2**62)):
        export.insert("CUPTI_ACTIVITY_KIND_MEMCPY", start, end, 0, 1, 7, "c", "p", "b", "k", 0, 0, None)
    export.insert("CUPTI_ACTIVITY_KIND_MEMCPY", 30, 40, "d", "c", "s", "c", "p", "b", "k", "s", "d", b"n")
    export.range("x" * 100_000, 5, 6)
    trace = export.read()
    assert spans(trace, Kind.KERNEL) == [("good", 10, 20)]
    assert spans(trace, Kind.MEMCPY) == [("Memcpy", 30, 40)]
    assert len(spans(trace, Kind.ANNOTATION)[0][0]) <= 8192


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE a (b)",
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT)",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, x INT, end INT GENERATED ALWAYS AS (x + 1))",
    ],
)
def test_a_database_without_the_tables_of_an_export_is_no_trace(schema: str, tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute(schema)
    with pytest.raises(TachoscopeError, match=r"without the tables of an Nsight Systems export"):
        read(path)


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: data[:100] + b"\xff" * (len(data) - 100), lambda data: data[:16]]
)
def test_a_damaged_database_is_one_clear_error(damage: Callable[[bytes], bytes], export: Export) -> None:
    for number in range(2000):
        export.kernel(f"k{number}", number, number + 1, number)
    export.database.commit()
    export.database.close()
    data = export.path.read_bytes()
    export.path.write_bytes(damage(data))
    with pytest.raises(TachoscopeError, match=r"report\.sqlite"):
        read(export.path)


def test_the_file_is_left_as_it_is(export: Export) -> None:
    export.kernel("k", 1, 2, 3)
    export.database.commit()
    export.database.close()
    before = export.path.read_bytes(), export.path.stat().st_mtime_ns
    export.path.chmod(0o444)
    read(export.path)
    assert (export.path.read_bytes(), export.path.stat().st_mtime_ns) == before
    assert [file.name for file in export.path.parent.iterdir() if file.name.startswith("report")] == ["report.sqlite"]


def test_an_export_larger_than_a_batch_is_read_to_its_end(export: Export) -> None:
    chance = random.Random(3)
    truth = [(chance.randrange(10**12), chance.randrange(10**6)) for _ in range(45_000)]
    export.database.executemany(
        f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?, ?, 0, 1, 7, 1, {global_id(100)}, 0, 512, NULL, 2)",
        [(start, start + length) for start, length in truth],
    )
    trace = export.read()
    assert list(zip(trace.start.tolist(), trace.events["duration"].tolist(), strict=True)) == truth
    assert trace.device["row"].tolist() == list(range(45_000))
