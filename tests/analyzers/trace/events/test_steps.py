"""Steps: marks where there are any, else what repeats; they tile, and no device work of the last one is lost."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planting import BACKWARD, Planted
from recorded import ALL, recorded
from tachoscope_analyzers.trace.events.steps import Steps
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read

US = 1_000
T = 1_000_000 * US


def steps_of(trace: Planted, folder: Path) -> Steps:
    return TraceView(trace.read(folder)).steps


def lengths(steps: Steps) -> list[int]:
    return [int(length) // US for length in steps.end - steps.start]


@pytest.mark.parametrize("name", ALL or ["dlrm8/rank-0.json.gz"])
def test_steps_of_every_sample_trace_tile_their_window_on_host_and_device_alike(name: str) -> None:
    view = TraceView(read(recorded(name)))
    for steps in (view.steps, view.device_steps):
        assert len(steps) >= 1
        assert (steps.end > steps.start).all()
        assert (steps.start[1:] == steps.end[:-1]).all()
    assert view.steps.start[0] == view.device_steps.start[0]
    assert view.steps.end[-1] == view.device_steps.end[-1]


@pytest.mark.parametrize(
    ("name", "source", "count"),
    [
        ("kineto/resnet50_nw0_a.pt.trace", "profiler", 6),  # category Operator, of 2021
        ("hta/v100_ns_resolution", "profiler", 5),
        ("hta/diff_test_v100", "profiler", 6),
        ("tracelens/vllm_decode_full", "window", 1),  # one step, whose layers repeat within one graph
        ("hta/a100_alexnet", "window", 1),
    ],
)
def test_sample_traces_have_their_steps(name: str, source: str, count: int) -> None:
    steps = TraceView(read(recorded(name))).steps
    assert (steps.source, len(steps)) == (source, count)


def test_a_host_that_runs_ahead_has_uneven_marks_and_the_device_even_steps() -> None:
    view = TraceView(read(recorded("hta/v100_ns_resolution")))
    host, device = (np.diff(np.append(steps.start, steps.end[-1])) for steps in (view.steps, view.device_steps))
    assert host.max() / host.min() > 5
    assert device[1:].max() / device[1:].min() < 1.01


def test_the_step_of_the_input_bound_sample_lasts_178_ms() -> None:
    steps = TraceView(read(recorded("kineto/resnet50_nw0_a.pt.trace"))).steps
    assert (steps.end - steps.start).mean() / 1e6 == pytest.approx(177.6, abs=0.1)


def test_numbers_are_the_profilers_and_a_step_ends_where_the_next_begins(tmp_path: Path) -> None:
    trace = Planted()
    for number in (7, 8, 9):
        trace.step(number, T + (number - 7) * 100 * US, 90 * US)
    steps = steps_of(trace, tmp_path)
    assert steps.number.tolist() == [7, 8, 9]
    assert lengths(steps) == [100, 100, 90]
    assert steps.source == "profiler"


def test_the_last_step_lasts_until_what_it_launched_is_done_and_later_work_is_in_no_step(tmp_path: Path) -> None:
    trace = Planted()
    trace.step(1, T, 100 * US)
    trace.kernel("k", T - 50 * US, 20 * US, launched=T - 60 * US)
    trace.kernel("k", T + 400 * US, 50 * US, launched=T + 90 * US)
    trace.kernel("k", T + 900 * US, 50 * US, launched=T + 890 * US)
    steps = steps_of(trace, tmp_path)
    assert lengths(steps) == [450]
    assert steps.step_at(np.array([T - 1, T, T + 450 * US - 1, T + 450 * US])).tolist() == [-1, 0, 0, -1]


def test_the_time_of_steps_that_are_not_in_the_trace_is_in_no_step(tmp_path: Path) -> None:
    trace = Planted()
    trace.step(1, T, 100 * US)
    trace.kernel("k", T + 90 * US, 30 * US, launched=T + 80 * US)
    trace.step(5, T + 1_000 * US, 100 * US)
    steps = steps_of(trace, tmp_path)
    assert lengths(steps) == [120, 100]
    assert steps.number.tolist() == [1, 5]


def test_marks_of_two_merged_ranks_are_not_mixed(tmp_path: Path) -> None:
    trace = Planted()
    for number in range(3):
        trace.step(number, T + number * 100 * US, 90 * US)
        trace.add("user_annotation", f"ProfilerStep#{number}", T + (number * 100 + 30) * US, 90 * US, pid=555)
    assert len(steps_of(trace, tmp_path)) == 3


def test_the_devices_marks_do_where_the_hosts_are_lost(tmp_path: Path) -> None:
    trace = Planted()
    for number in range(3):
        trace.device("gpu_user_annotation", f"ProfilerStep#{number}", T + number * 100 * US, 90 * US)
        trace.kernel("k", T + number * 100 * US, 90 * US)
    steps = steps_of(trace, tmp_path)
    assert (steps.source, len(steps)) == ("device_annotation", 3)


@pytest.mark.parametrize("name", ["train_step {}", "iteration#{}", "execute_{}_context_0", "step[DECODE bs={}]", "anything at all"])
def test_without_marks_an_annotation_that_repeats_is_the_step(tmp_path: Path, name: str) -> None:
    trace = Planted()
    for number in range(4):
        trace.annotation(name.format(number), T + number * 100 * US, 95 * US)
        trace.annotation("forward", T + number * 100 * US, 40 * US)
        trace.annotation("nccl:all_reduce", T + number * 100 * US + 50 * US, 10 * US)
    steps = steps_of(trace, tmp_path)
    assert (steps.source, len(steps)) == ("annotation", 4)
    assert lengths(steps)[:3] == [100, 100, 100]


def test_the_steps_that_tensorflow_writes_on_a_line_of_their_own_are_taken(tmp_path: Path) -> None:
    events = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "Stream #14(Compute)"}},
        {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "Steps"}},
    ]
    for step in range(3):
        events.append({"ph": "X", "pid": 1, "tid": 2, "ts": 1_000 + step * 100, "dur": 90, "name": str(step + 41)})
        events.append({"ph": "X", "pid": 1, "tid": 1, "ts": 1_000 + step * 100, "dur": 80, "name": "fusion"})
    path = tmp_path / "host.trace.json"
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))
    steps = TraceView(read(path)).steps
    assert steps.number.tolist() == [41, 42, 43]
    assert lengths(steps) == [100, 100, 90]


def test_annotations_that_cover_little_are_no_steps(tmp_path: Path) -> None:
    trace = Planted()
    for number in range(4):
        trace.annotation("forward", T + number * 100 * US, 20 * US)
    assert steps_of(trace, tmp_path).source == "window"


def test_without_annotations_the_optimizer_ends_the_steps(tmp_path: Path) -> None:
    trace = Planted()
    trace.op("aten::linear", T, 10 * US)
    for number in range(3):
        trace.annotation("Optimizer.step#Adam.step", T + (number * 100 + 80) * US, 20 * US)
    steps = steps_of(trace, tmp_path)
    assert (steps.source, lengths(steps)) == ("optimizer", [100, 100, 100])


def test_without_an_optimizer_the_loader_begins_them(tmp_path: Path) -> None:
    trace = Planted()
    for number in range(3):
        trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", T + number * 100 * US, 20 * US)
        trace.op("aten::linear", T + number * 100 * US + 20 * US, 80 * US)
    steps = steps_of(trace, tmp_path)
    assert (steps.source, lengths(steps)) == ("loader", [100, 100, 100])


def test_with_nothing_else_the_whole_window_is_one_step(tmp_path: Path) -> None:
    trace = Planted()
    trace.op("aten::linear", T, 10 * US, tid=BACKWARD)
    trace.kernel("k", T + 30 * US, 20 * US, launched=T + 5 * US)
    steps = steps_of(trace, tmp_path)
    assert (steps.source, lengths(steps)) == ("window", [20])


def test_a_trace_without_events_has_no_steps(tmp_path: Path) -> None:
    steps = steps_of(Planted(), tmp_path)
    assert len(steps) == 0
    assert steps.step_at(np.array([T])).tolist() == [-1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(0, 900), st.integers(0, 3_000)), min_size=1, max_size=23),
)
def test_plant_so_many_steps_and_find_so_many_with_all_their_kernels(tmp_path: Path, planted: list[tuple[int, int, int]]) -> None:
    trace, now, free = Planted(), T, T
    owner = []
    for number, (length, work, _) in enumerate(planted):
        trace.step(number, now, length * US)
        start = max(free, now + 2 * US)
        trace.kernel("k", start, work * US, launched=now, launch_duration=US // 2)
        owner.append((number, start, start + work * US))
        free = start + work * US
        now += length * US
    view = TraceView(trace.read(tmp_path))
    assert view.steps.number.tolist() == list(range(len(planted)))
    device = view.device_steps
    for number, start, end in owner:  # in order on one stream, each kernel lies in the device's step that launched it
        assert device.start[number] <= start
        assert end <= device.end[number] or start == end
    assert device.end[-1] >= free
