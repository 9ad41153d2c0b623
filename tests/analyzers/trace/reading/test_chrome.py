"""Small files as other writers write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tachoscope_analyzers.trace.events.launch_links import device_work
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_analyzers.trace.reading.trace import Trace

pytestmark = pytest.mark.usefixtures("scanner")


def kinds(trace: Trace) -> dict[str, str]:
    names = trace.names(np.arange(len(trace.events))).tolist()
    return {name: Kind(kind).name for name, kind in zip(names, trace.kind.tolist(), strict=True)}


class Horovod:
    """Writes a timeline as horovod 0.28 does (`TimelineWriter`): tensors are processes, and each record closes the list again."""

    def __init__(self) -> None:
        self.text = (
            '[\n{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1713219600000000}},\n'
            '{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},\n'
        )
        self.tensors: dict[str, int] = {}
        self.first = True

    def record(self, tensor: str, phase: str, time: int, name: str = "", args: str = "") -> None:
        if not self.first:
            self.text = self.text[:-1] + ","
        self.first = False
        if tensor not in self.tensors:
            number = self.tensors[tensor] = len(self.tensors) + 1
            self.text += (
                f'{{"name": "process_name", "ph": "M", "pid": {number}, "args": {{"name": "{tensor}"}}}},\n'
                f'{{"name": "process_sort_index", "ph": "M", "pid": {number}, "args": {{"sort_index": {number}}}}},\n'
            )
        self.text += (
            f'{{"ph": "{phase}"'
            + (f', "name": "{name}"' if phase != "E" else "")
            + f', "ts": {time}, "pid": {self.tensors[tensor]}'
        )
        self.text += (', "dur": 0' if phase == "X" else "") + (f', "args": {{{args}}}' if args else "") + "}]"

    def reduce(self, tensor: str, start: int) -> None:
        self.record(tensor, "B", start, "NEGOTIATE_ALLREDUCE")
        self.record(tensor, "X", start + 1, "0")
        self.record(tensor, "X", start + 9, "1")
        self.record(tensor, "E", start + 10)
        self.record(tensor, "B", start + 12, "ALLREDUCE")
        for offset, length, name in ((13, 4, "QUEUE"), (20, 10, "MEMCPY_IN_FUSION_BUFFER"), (30, 50, "NCCL_ALLREDUCE")):
            self.record(tensor, "B", start + offset, name)
            self.record(tensor, "E", start + offset + length)
        self.record(tensor, "E", start + 90, args='"dtype": "float32", "shape": "[10, 20]"')


def test_a_horovod_timeline(tmp_path: Path) -> None:
    timeline = Horovod()
    timeline.reduce("DistributedOptimizer.dense/kernel:0", 1000)
    timeline.reduce("bias", 2000)
    path = tmp_path / "timeline.json"
    for text in (timeline.text, timeline.text[:-1], timeline.text[:-1] + ",\n"):
        path.write_text(text)
        trace = read(path)
        assert not trace.meta.quality.cut, "older versions never close the list"
        assert trace.meta.writer == "horovod"
        assert kinds(trace) == {
            "NEGOTIATE_ALLREDUCE": "ANNOTATION",
            "0": "ANNOTATION",
            "1": "ANNOTATION",
            "ALLREDUCE": "CPU_OP",
            "QUEUE": "ANNOTATION",
            "MEMCPY_IN_FUSION_BUFFER": "MEMCPY",
            "NCCL_ALLREDUCE": "KERNEL",
        }
        work = device_work(trace)
        found = zip(trace.names(work.row).tolist(), work.start.tolist(), (work.end - work.start).tolist(), strict=True)
        assert sorted(found) == [
            ("MEMCPY_IN_FUSION_BUFFER", 1_020_000, 10_000),
            ("MEMCPY_IN_FUSION_BUFFER", 2_020_000, 10_000),
            ("NCCL_ALLREDUCE", 1_030_000, 50_000),
            ("NCCL_ALLREDUCE", 2_030_000, 50_000),
        ]
        assert set(work.device.tolist()) == {0}
        assert len(set(work.stream.tolist())) == 2
        whole = trace.names(np.arange(len(trace.events))).tolist().index("ALLREDUCE")
        assert trace.events["duration"][whole] == 78_000


def trace_viewer(processes: dict[str, dict[str, list[tuple[str, str, str]]]]) -> str:
    """Text as TensorFlow 2 writes it (`TraceEventsToJson`): sorted metadata, times with six decimals, an empty last event."""
    text = '{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":['
    events = ""
    for process, (name, threads) in enumerate(processes.items(), start=1):
        text += f'{{"ph":"M","pid":{process},"name":"process_name","args":{{"name":{json.dumps(name)}}}}},'
        text += f'{{"ph":"M","pid":{process},"name":"process_sort_index","args":{{"sort_index":{process}}}}},'
        for thread, (line, found) in enumerate(threads.items(), start=11):
            text += f'{{"ph":"M","pid":{process},"tid":{thread},"name":"thread_name","args":{{"name":{json.dumps(line)}}}}},'
            for event, start, duration in found:
                events += f'{{"ph":"X","pid":{process},"tid":{thread},"ts":{start},"dur":{duration},"name":{json.dumps(event)},'
                events += '"args":{"correlation_id":"7","group_id":"0"}},'
    return text + events + "{}]}"


GPU: dict[str, Any] = {
    "/device:GPU:1": {
        "Stream #14(Compute)": [("fusion_3", "10.000001", "5.5"), ("Memset", "20.000499", "1.0")],
        "Stream #15(MemcpyH2D)": [("MemcpyH2D", "1.25", "2.000600")],
        "XLA Ops": [("fusion_3", "10.000001", "5.5")],
        "Steps": [("4", "0.5", "30")],
    },
    "/host:CPU": {
        "python": [("$profiler.py:91 trace", "0", "40"), ("PjitFunction(step)", "0.1", "9"), ("cuLaunchKernel", "5.5", "0.75")],
        "tf_XLAPjRt/123": [("ExecuteHelper", "1", "8")],
    },
}


def test_a_trace_viewer_file_of_a_gpu(tmp_path: Path) -> None:
    path = tmp_path / "plugin.trace.json"
    path.write_text(trace_viewer(GPU))
    trace = read(path)
    assert trace.meta.writer == "tensorflow"
    work = device_work(trace)
    found = zip(
        trace.names(work.row).tolist(), work.kind.tolist(), work.start.tolist(), (work.end - work.start).tolist(), strict=True
    )
    assert list(found) == [
        ("fusion_3", Kind.KERNEL, 10_000, 5500),
        ("Memset", Kind.MEMSET, 20_000, 1000),
        ("MemcpyH2D", Kind.MEMCPY, 1250, 2001),
    ]
    assert set(work.device.tolist()) == {1}
    assert work.stream.tolist() == [14, 14, 15]
    other = kinds(trace)
    assert (other["4"], other["$profiler.py:91 trace"], other["PjitFunction(step)"]) == ("DEVICE_ANNOTATION", "PYTHON", "CPU_OP")
    assert (other["cuLaunchKernel"], other["ExecuteHelper"]) == ("RUNTIME", "CPU_OP")
    assert not trace.meta.quality.cut


def test_on_a_tpu_the_operators_are_the_work(tmp_path: Path) -> None:
    lines = {
        "XLA Modules": [("jit_step", "0", "100")],
        "XLA Ops": [("fusion", "1", "2"), ("all-reduce", "5", "3")],
        "Steps": [("0", "0", "100")],
    }
    path = tmp_path / "trace.json"
    path.write_text(trace_viewer({"/device:TPU:3": lines, "/host:CPU": {"python": [("x", "0", "1")]}}))
    trace = read(path)
    work = device_work(trace)
    assert trace.names(work.row).tolist() == ["fusion", "all-reduce"]
    assert set(work.device.tolist()) == {3}


def test_the_same_kinds_come_from_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(trace_viewer(GPU))
    first, second = read(path), read(path)
    assert first.kind.tolist() == second.kind.tolist()
    assert first.device["stream"].tolist() == second.device["stream"].tolist()
    assert set(first.device.columns) >= {"row", "stream", "device", "bytes", "graph_node", "grid", "block"}


def test_the_synthetic_table_has_the_columns_of_a_recorded_one(tmp_path: Path) -> None:
    kineto, viewer = tmp_path / "kineto.json", tmp_path / "viewer.json"
    kineto.write_text('[{"ph": "X", "cat": "kernel", "ts": 1}]')
    viewer.write_text(trace_viewer(GPU))
    one, other = read(kineto).device.columns, read(viewer).device.columns
    assert {name: values.dtype for name, values in one.items()} == {name: values.dtype for name, values in other.items()}


def test_events_of_an_unknown_writer_are_neither_host_nor_device(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('[{"ph": "X", "name": "a", "cat": "blink", "ts": 1, "dur": 2, "pid": 1, "tid": 1, "args": {"stream": 7}}]')
    trace = read(path)
    assert trace.meta.writer == "chrome"
    assert trace.kind.tolist() == [Kind.OTHER]
    assert len(device_work(trace)) == 0
