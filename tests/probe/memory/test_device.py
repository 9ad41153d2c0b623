"""Memory of an accelerator, with an allocator that answers as PyTorch documents it: there is none on this machine."""

from __future__ import annotations

import sys
import sysconfig
from types import SimpleNamespace
from typing import Any

import pytest

from tachoscope.memory.device import DeviceWatch, largest_blocks
from tachoscope_core.records import records

MIB = 1 << 20
SNAPSHOT = {
    "segments": [
        {
            "address": 1,
            "total_size": 900 * MIB,
            "blocks": [
                {"size": 300 * MIB, "requested_size": 299 * MIB, "state": "active_allocated",
                 "frames": [{"filename": f"{sysconfig.get_path('purelib')}/torch/nn/modules/linear.py", "line": 1},
                            {"filename": "/job/model.py", "line": 41, "name": "forward"}]},
                {"size": 200 * MIB, "requested_size": 200 * MIB, "state": "active_allocated",
                 "frames": [{"filename": "/job/model.py", "line": 41, "name": "forward"}]},
                {"size": 50 * MIB, "requested_size": 50 * MIB, "state": "active_allocated", "frames": []},
                {"size": 350 * MIB, "requested_size": 0, "state": "inactive", "frames": [{"filename": "/job/x.py", "line": 1}]},
            ],
        }
    ],
    "device_traces": [],
}  # fmt: skip
"""As https://docs.pytorch.org/docs/stable/torch_cuda_memory.html describes a snapshot."""


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
        written.append(kind(**envelope, time=1.0, monotonic_ns=1, **fields))  # type: ignore[arg-type]

    DeviceWatch(write, lambda: 7, {"TACHOSCOPE_MEMORY_HISTORY": "1"}).memory()
    torch.observer(1, 64 * MIB, 1000 * MIB, 10 * MIB)  # of this test: the line that asked
    (row,) = written

    assert (row.place, row.step, row.limit_of, row.requested_bytes) == ("device", 7, "NVIDIA H200", 64 * MIB)
    assert row.location.startswith("test_device.py:")
    assert [(one.line, one.bytes, one.count) for one in row.largest_blocks] == [
        ("model.py:41", 499 * MIB, 2),
        ("unknown", 50 * MIB, 1),
    ]


def test_without_an_accelerator_and_with_one_that_does_not_say_nothing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False)))
    assert DeviceWatch(lambda *args, **fields: None, lambda: 7, {}).memory() is None
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True)))
    watch = DeviceWatch(lambda *args, **fields: None, lambda: 7, {})
    assert watch.memory() is None
    watch.out_of_memory(0, 1, 2, 3)
    assert largest_blocks({}) == []
