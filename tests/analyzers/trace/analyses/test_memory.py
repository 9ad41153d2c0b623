"""Copies, allocator calls and the memory over time."""

import json
from pathlib import Path

import pytest

from planting import Planted, microseconds
from recorded import ALL, recorded
from tachoscope_analyzers.trace.analyses.memory import allocator_calls, copies, memory_summary, timeline
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.read import read

US = 1_000
T = 1_000_000 * US


def allocation(trace: Planted, time: int, size: int, allocated: int, reserved: int, *, device: int = 0, kind: int = 1) -> None:
    args = {
        "Total Reserved": reserved,
        "Total Allocated": allocated,
        "Bytes": size,
        "Addr": 7,
        "Device Id": device,
        "Device Type": kind,
    }
    trace.events.append(
        f'  {{\n    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 100, "tid": 100,\n'
        f'    "ts": {microseconds(time)},\n    "args": {json.dumps(args)}\n  }}'
    )


@pytest.mark.parametrize(
    ("name", "kind", "direction", "memory"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", "HtoD", "pageable"),
        ("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", "HtoD", "pinned"),
        ("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", "DtoH", "pageable"),
        ("Memcpy DtoD (Device -> Device)", "gpu_memcpy", "DtoD", ""),
        ("Memcpy PtoP (Device -> Device)", "gpu_memcpy", "PtoP", ""),
        ("CopyHostToDevice", "gpu_memcpy", "HtoD", ""),
        ("Memset (Device)", "gpu_memset", "fill", ""),
        ("Memcpy", "gpu_memcpy", "other", ""),
    ],
)
def test_the_name_tells_direction_and_host_memory(tmp_path: Path, name: str, kind: str, direction: str, memory: str) -> None:
    trace = Planted()
    trace.device(kind, name, T, 10 * US, bytes=1_000_000)
    row = copies(TraceView(trace.read(tmp_path))).iloc[0]
    assert (row["direction"], row["host_memory"]) == (direction, memory)
    assert row["bandwidth_gb_per_s"] == 100  # 1 MB in 10 us


def test_copies_that_do_not_tell_their_size_count_but_not_in_the_bandwidth(tmp_path: Path) -> None:
    trace = Planted()
    trace.device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", T, 10 * US, bytes=1_000_000)
    trace.device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", T + 20 * US, 30 * US)
    row = copies(TraceView(trace.read(tmp_path))).iloc[0]
    assert (row["count"], row["total_ns"], row["bytes"], row["bandwidth_gb_per_s"]) == (2, 40 * US, 1_000_000, 100)


@pytest.mark.parametrize("name", ALL or ["dlrm8/rank-0.json.gz"])
def test_every_copy_and_fill_of_a_sample_trace_is_in_the_table(name: str) -> None:
    view = TraceView(read(recorded(name)))
    moved = (view.work.kind == Kind.MEMCPY) | (view.work.kind == Kind.MEMSET)
    table = copies(view)
    assert table["count"].sum() == moved.sum()
    assert table["total_ns"].sum() == (view.work.end - view.work.start)[moved].sum()
    if "mtia" not in name:  # the names of its copies do not tell where they go
        assert not (table["direction"] == "other").any()


def test_the_sample_with_pageable_copies_shows_them() -> None:
    table = copies(TraceView(read(recorded("kineto/resnet50_nw0_a.pt.trace"))))
    row = table[table["direction"] == "HtoD"].iloc[0]
    assert (row["host_memory"], row["count"], row["bytes"]) == ("pageable", 12, 115_607_040)


def test_allocator_calls_in_steps_are_counted_with_the_time_the_device_idled_in_them(tmp_path: Path) -> None:
    trace = Planted()
    trace.call("cudaMalloc", T - 500 * US, 100 * US)
    for step in range(3):
        at = T + step * 1_000 * US
        trace.step(step, at, 1_000 * US)
        trace.kernel("k", at, 300 * US, launched=at - 10 * US)
        trace.kernel("k", at + 700 * US, 300 * US, launched=at + 690 * US)
    for _ in range(2):
        trace.call("cudaMalloc", T + 200 * US, 300 * US)
    trace.call("cudaFree", T + 1_400 * US, 100 * US)
    table = allocator_calls(TraceView(trace.read(tmp_path))).set_index("name")
    columns = ["calls", "calls_in_steps", "steps_with_calls", "total_ns", "idle_ns"]
    assert table.loc["cudaMalloc", columns].tolist() == [3, 2, 1, 700 * US, 200 * US]
    assert table.loc["cudaFree", columns].tolist() == [1, 1, 1, 100 * US, 100 * US]


def test_memory_over_time_is_ordered_and_its_peak_and_growth_are_told_by_device(tmp_path: Path) -> None:
    trace = Planted()
    allocation(trace, T + 20 * US, 300, 400, 1_000)
    allocation(trace, T, 100, 100, 500)
    allocation(trace, T + 30 * US, -200, 200, 1_000)
    allocation(trace, T, 8, 8, 0, device=-1, kind=0)
    view = TraceView(trace.read(tmp_path))
    table = timeline(view.trace)
    assert table["time_ns"].is_monotonic_increasing
    row = memory_summary(view).set_index("device_type").loc[1]
    assert (row["allocations"], row["frees"]) == (2, 1)
    assert (row["peak_allocated_bytes"], row["peak_time_ns"]) == (400, T + 20 * US)
    assert (row["growth_bytes"], row["peak_reserved_bytes"], row["reserved_growth_bytes"]) == (100, 1_000, 500)
    assert row["capacity_bytes"] == 1 << 34


def test_a_trace_without_copies_allocations_and_calls_has_empty_tables(tmp_path: Path) -> None:
    view = TraceView(Planted().read(tmp_path))
    for table in (copies(view), allocator_calls(view), timeline(view.trace), memory_summary(view)):
        assert table.empty
        assert len(table.columns)
