"""Memory of an accelerator, with an allocator that answers as PyTorch documents it: there is none on this machine."""

from __future__ import annotations

import sys
import sysconfig
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tachoscope.memory.allocator_snapshot import MOST_LINES, free_segments, largest_blocks
from tachoscope.memory.device import DeviceWatch
from tachoscope_analyzers.memory.verdict import judge
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.records import records
from tachoscope_core.report.report import Source
from tachoscope_show.report import memory_words

MIB = 1 << 20
SNAPSHOT = {
    "segments": [
        {
            "device": 1, "address": 1, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
            "total_size": 900 * MIB, "allocated_size": 550 * MIB, "active_size": 550 * MIB,
            "blocks": [
                {"size": 300 * MIB, "requested_size": 299 * MIB, "state": "active_allocated",
                 "frames": [{"filename": f"{sysconfig.get_path('purelib')}/torch/nn/modules/linear.py", "line": 1},
                            {"filename": "/job/model.py", "line": 41, "name": "forward"}]},
                {"size": 200 * MIB, "requested_size": 200 * MIB, "state": "active_allocated",
                 "frames": [{"filename": "/job/model.py", "line": 41, "name": "forward"}]},
                {"size": 50 * MIB, "requested_size": 50 * MIB, "state": "active_allocated", "frames": []},
                {"size": 350 * MIB, "requested_size": 0, "state": "inactive", "frames": [{"filename": "/job/x.py", "line": 1}]},
            ],
        },
        {
            "device": 0, "address": 2, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
            "total_size": 80 * MIB, "allocated_size": 40 * MIB, "active_size": 40 * MIB,
            "blocks": [{"size": 40 * MIB, "requested_size": 40 * MIB, "state": "active_allocated", "frames": []},
                       {"size": 40 * MIB, "requested_size": 0, "state": "inactive", "frames": []}],
        },
    ],
    "device_traces": [],
}  # fmt: skip
"""Of two devices, with the keys that `torch.cuda.memory._snapshot()` of torch 2.13 returns."""


class FakeTorch:
    """A module `torch` whose allocator holds 550 of 900 MiB on the second of two devices."""

    def __init__(self) -> None:
        self.observer: Any = None
        self.history: dict[str, Any] = {}
        self._C = SimpleNamespace(_cuda_attach_out_of_memory_observer=self._attach)
        stats = {name: {"all": {"current": size * MIB}} for name, size in (("allocated_bytes", 550), ("reserved_bytes", 900))}
        unused = {name: {"all": {"current": 0}} for name in stats}
        self.cuda = SimpleNamespace(
            is_initialized=lambda: True,
            device_count=lambda: 2,
            memory_stats_as_nested_dict=lambda device: stats if device == 1 else unused,
            get_device_properties=lambda device: SimpleNamespace(total_memory=1000 * MIB),
            get_device_name=lambda device: "NVIDIA H200",
            memory=SimpleNamespace(
                _record_memory_history=lambda **options: self.history.update(options), _snapshot=lambda: SNAPSHOT
            ),
        )

    def _attach(self, observer: Any) -> None:
        self.observer = observer


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_what_the_allocator_holds_is_read_and_its_history_is_kept_only_if_it_is_wanted(torch: FakeTorch) -> None:
    watch = DeviceWatch(lambda *args, **fields: None, lambda: 7, {})

    held = records.DeviceMemory(allocated_bytes=550 * MIB, reserved_bytes=900 * MIB, total_bytes=1000 * MIB)
    assert watch.memory() == held
    assert torch.history == {}
    DeviceWatch(lambda *args, **fields: None, lambda: 7, {"TACHOSCOPE_MEMORY_HISTORY": "1"}).memory()
    assert torch.history["max_entries"] <= 100_000


def test_an_allocator_without_memory_is_written_with_what_was_asked_for_where_and_the_largest_blocks(torch: FakeTorch) -> None:
    written: list[records.OutOfMemory] = []

    def write(kind: type[records.Record], **fields: Any) -> None:
        envelope = {"job": "a", "attempt": 0, "writer": "w", "seq": 0, "rank": 0, "local_rank": 0, "host": "h"}
        written.append(kind(**envelope, time=1.0, monotonic_ns=1, failed_rank=0, failed_writer="w", **fields))  # type: ignore[arg-type]

    DeviceWatch(write, lambda: 7, {"TACHOSCOPE_MEMORY_HISTORY": "1"}).memory()
    torch.observer(1, 64 * MIB, 1000 * MIB, 10 * MIB)  # of this test: the line that asked
    (row,) = written

    assert (row.place, row.step, row.limit_of, row.requested_bytes) == ("device", 7, "NVIDIA H200", 64 * MIB)
    assert row.location.startswith("test_device.py:")
    assert [(one.line, one.bytes, one.count) for one in row.largest_blocks] == [
        ("model.py:41", 499 * MIB, 2),
        ("unknown", 50 * MIB, 1),
    ]
    assert row.largest_blocks[0].stack == ["model.py:41 forward"], "the innermost frame of the job first, without those of torch"
    assert (row.free_segments, row.free_segment_count) == (
        [records.DeviceSegment(reserved_bytes=900 * MIB, allocated_bytes=550 * MIB, largest_free_bytes=350 * MIB)],
        1,
    ), "of the device that has no memory left"
    read = records.decode(msgspec.json.encode(row))
    assert isinstance(read, records.OutOfMemory)
    judged = judge(JobRecords("a", Source(path="here"), out_of_memory=[read]), 0, 10)
    assert memory_words.lines(judged.report)[1:] == [
        "350.0 MiB lie free in 1 segment of the allocator, at most 350.0 MiB of it in one piece",
        "live block on the accelerator: model.py:41: 499.0 MiB in 2 blocks",
        "live block on the accelerator: unknown: 50.0 MiB in 1 block",
    ]


def test_a_snapshot_of_any_size_is_a_record_of_bounded_size_with_what_is_largest() -> None:
    frames = [{"filename": f"/job/{'deep/' * 100}model{number}.py", "line": 3, "name": "f" * 5000} for number in range(50)]
    blocks = [
        {"size": size, "requested_size": size, "state": "active_allocated", "frames": [{**frames[0], "line": size}, *frames]}
        for size in range(1, 500)
    ]
    segments = [
        {"device": 0, "total_size": 500 * size, "allocated_size": 1, "blocks": [*blocks, {"size": size, "state": "inactive"}]}
        for size in range(1, 200)
    ]
    found, (free, count) = largest_blocks({"segments": segments}, 0), free_segments({"segments": segments}, 0)

    assert (len(found), len(free), count) == (MOST_LINES, 64, 199)
    assert (found[0].bytes, free[0].largest_free_bytes) == (499 * 199, 199)
    assert len(msgspec.json.encode([found, free])) < 64 << 10


def test_a_record_with_more_of_a_snapshot_than_the_probe_writes_is_refused() -> None:
    row = {"kind": "OutOfMemory", "job": "a", "attempt": 0, "writer": "w", "seq": 0, "rank": 0, "local_rank": 0, "host": "h",
           "time": 1.0, "monotonic_ns": 1}  # fmt: skip
    segment = {"reserved_bytes": 1, "allocated_bytes": 0}
    records.decode(msgspec.json.encode({**row, "free_segments": [segment]}))

    for hostile in (
        {"free_segments": [segment] * 65},
        {"free_segments": [{"reserved_bytes": -1, "allocated_bytes": 0}]},
        {"largest_blocks": [{"line": "x", "bytes": 1, "stack": ["x"] * 9}]},
        {"largest_blocks": [{"line": "x" * 5000, "bytes": 1}]},
    ):
        with pytest.raises(records.MalformedRecordError):
            records.decode(msgspec.json.encode({**row, **hostile}))


def test_without_an_accelerator_and_with_one_that_does_not_say_nothing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False)))
    assert DeviceWatch(lambda *args, **fields: None, lambda: 7, {}).memory() is None
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True)))
    watch = DeviceWatch(lambda *args, **fields: None, lambda: 7, {})
    assert watch.memory() is None
    watch.out_of_memory(0, 1, 2, 3)
    assert (largest_blocks({}, 0), free_segments({}, 0)) == ([], ([], 0))
