"""Idle time is split by cause to the nanosecond, and each planted cause is found and no other."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planting import MAIN, Planted
from recorded import ALL, recorded
from tachoscope_analyzers.trace.device_time.breakdown import breakdown
from tachoscope_analyzers.trace.device_time.idle import CAUSES, by_cause, idle
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read

US = 1_000
T = 1_000_000 * US


def causes(trace: Planted, folder: Path) -> dict[str, int]:
    table = idle(TraceView(trace.read(folder)))
    return {cause: int(part) for cause, part in table.groupby("cause", observed=True)["duration_ns"].sum().items()}


def one_gap(gap_ns: int) -> Planted:
    """Two kernels with a gap between, the second launched 4 us before it starts; the host's main thread is busy throughout."""
    trace = Planted()
    trace.kernel("first", T, 100 * US, launched=T - 10 * US, launch_duration=2 * US)
    trace.kernel("second", T + 100 * US + gap_ns, 50 * US, launched=T + 96 * US + gap_ns, launch_duration=3 * US)
    return trace


@pytest.mark.parametrize("name", ALL or ["dlrm8/rank-0.json.gz"])
def test_causes_sum_to_the_idle_time_of_every_sample_trace(name: str) -> None:
    view = TraceView(read(recorded(name)))
    table, whole = idle(view), breakdown(view)
    assert table.groupby("device")["duration_ns"].sum().reindex(whole["device"], fill_value=0).tolist() == whole["idle_ns"].tolist()
    assert (table["duration_ns"] > 0).all()
    assert set(table["cause"]) <= set(CAUSES)
    ends = table["start_ns"] + table["duration_ns"]
    same = table["device"].to_numpy()[1:] == table["device"].to_numpy()[:-1]
    assert (table["start_ns"].to_numpy()[1:] >= ends.to_numpy()[:-1])[same].all()


def test_the_input_bound_sample_idles_for_its_loader_and_its_twin_does_not() -> None:
    slow, quick = (TraceView(read(recorded(f"kineto/resnet50_{name}_a.pt.trace"))) for name in ("nw0", "nw4"))
    share = {}
    for name, view in (("slow", slow), ("quick", quick)):
        table = by_cause(idle(view))
        share[name] = table.loc[table["cause"] == "data_loading", "total_ns"].sum() / breakdown(view)["span_ns"].sum()
    assert share["slow"] > 0.28
    assert share["quick"] < 0.01
    top = by_cause(idle(slow)).iloc[0]
    assert top["detail"] == "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    assert top["source"] == "resnet50_profiler_api.py(42): <module>"


def test_a_loader_call_in_the_gap_is_data_loading_and_the_rest_of_the_gap_the_launch(tmp_path: Path) -> None:
    trace = one_gap(1_000 * US)
    trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", T + 150 * US, 600 * US)
    trace.op("aten::add", T + 750 * US, 400 * US)
    trace.op("aten::mul", T + 20 * US, 130 * US)
    assert causes(trace, tmp_path) == {"data_loading": 600 * US, "host_launch": 400 * US}


def test_a_loader_call_while_the_next_kernel_was_already_queued_explains_nothing(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("first", T, 100 * US, launched=T - 10 * US)
    trace.kernel("second", T + 300 * US, 50 * US, launched=T + 10 * US)
    trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", T + 50 * US, 600 * US)
    assert causes(trace, tmp_path) == {"kernel_wait": 200 * US}


def test_a_loader_call_of_a_thread_that_never_launches_does_not_hold_up_the_device(tmp_path: Path) -> None:
    trace = one_gap(1_000 * US)
    trace.op("aten::add", T + 20 * US, 1_070 * US)
    trace.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", T + 100 * US, 900 * US, tid=777)
    assert causes(trace, tmp_path) == {"host_launch": 1_000 * US}


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        ("cudaStreamSynchronize", "synchronisation"),
        ("cudaDeviceSynchronize", "synchronisation"),
        ("hipEventSynchronize", "synchronisation"),
        ("cudaMemcpy", "synchronisation"),
        ("cudaMalloc", "allocator"),
        ("hipFree", "allocator"),
        ("cudaEventQuery", "host_launch"),
    ],
)
def test_the_call_the_host_was_in_tells_the_cause(tmp_path: Path, call: str, cause: str) -> None:
    trace = one_gap(300 * US)
    trace.op("aten::item", T + 40 * US, 400 * US)
    trace.op("aten::_local_scalar_dense", T + 45 * US, 360 * US)
    trace.call(call, T + 50 * US, 346 * US)
    table = by_cause(idle(TraceView(trace.read(tmp_path))))
    assert table.iloc[0]["cause"] == cause
    if cause != "host_launch":
        assert (table.iloc[0]["detail"], table.iloc[0]["operator"]) == (call, "aten::item")


@pytest.mark.parametrize(("took", "blamed"), [(400, 300), (90, 90)])
def test_a_synchronisation_answers_for_what_the_host_does_next_for_as_long_as_it_took(
    tmp_path: Path, took: int, blamed: int
) -> None:
    trace = one_gap(300 * US)
    trace.call("cudaStreamSynchronize", T + (110 - took) * US, took * US)  # returns 10 us after the kernel ended
    trace.op("aten::add", T + 120 * US, 290 * US)
    found = causes(trace, tmp_path)
    assert found.pop("synchronisation") == blamed * US
    assert sum(found.values()) == found.get("host_launch", 0) == (300 - blamed) * US


def test_a_short_synchronisation_before_seconds_of_nothing_is_not_their_cause(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("first", T, 100 * US, launched=T - 10 * US)
    trace.call("cudaDeviceSynchronize", T + 90 * US, 17 * US)
    trace.device("kernel", "much_later", T + 13_000_100 * US, 50 * US, correlation=999)
    assert causes(trace, tmp_path) == {"synchronisation": 17 * US, "unexplained": 12_999_983 * US}


def test_what_the_host_does_before_it_synchronises_is_not_the_synchronisations(tmp_path: Path) -> None:
    trace = one_gap(300 * US)
    trace.op("aten::add", T + 50 * US, 350 * US)
    trace.call("cudaStreamSynchronize", T + 250 * US, 40 * US)
    assert causes(trace, tmp_path) == {"host_launch": 260 * US, "synchronisation": 40 * US}


def test_waiting_for_a_queue_that_still_runs_is_no_cause_of_its_short_gaps(tmp_path: Path) -> None:
    trace = Planted()
    for kernel in range(10):
        trace.kernel("short", T + kernel * 12 * US, 10 * US, launched=T - (100 - kernel) * US, launch_duration=US)
    trace.call("cudaDeviceSynchronize", T, 200 * US)
    assert causes(trace, tmp_path) == {"kernel_gap": 9 * 2 * US}


def test_a_long_silence_of_the_host_is_a_pause_and_a_collection_by_name_is_one_of_the_garbage_collector(tmp_path: Path) -> None:
    trace = one_gap(5_000 * US)
    trace.op("aten::add", T + 50 * US, 100 * US)
    assert causes(trace, tmp_path) == {"host_pause": 4_946 * US, "host_launch": 54 * US}
    trace.add("python_function", "<built-in function collect>", T + 1_000 * US, 2_000 * US, **{"Python id": 1})
    found = causes(trace, tmp_path)
    assert found["garbage_collection"] == 2_000 * US
    assert sum(found.values()) == 5_000 * US


@pytest.mark.parametrize(
    ("annotation", "cause"),
    [
        ("torch.save", "checkpoint"),
        ("save_checkpoint", "checkpoint"),
        ("evaluate", "evaluation"),
        ("## validation ##", "evaluation"),
        ("gloo:all_reduce", "communication"),
        ("## data_load ##", "data_loading"),
        ("forward", "host_pause"),
        ("checkpointed_layer", "host_pause"),
    ],
)
def test_an_annotation_tells_what_the_host_did(tmp_path: Path, annotation: str, cause: str) -> None:
    trace = one_gap(5_000 * US)
    trace.annotation(annotation, T + 1_000 * US, 4_000 * US)
    assert causes(trace, tmp_path)[cause] >= 4_000 * US


def test_a_gap_before_work_of_unknown_launch_is_unexplained_but_for_what_the_host_did_by_name(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("first", T, 100 * US, launched=T - 10 * US)
    trace.device("kernel", "second", T + 5_100 * US, 50 * US, correlation=999)
    assert causes(trace, tmp_path) == {"unexplained": 5_000 * US}
    trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", T + 200 * US, 3_000 * US)
    assert causes(trace, tmp_path) == {"data_loading": 3_000 * US, "unexplained": 2_000 * US}


def test_the_line_of_code_is_the_innermost_one_outside_of_torch(tmp_path: Path) -> None:
    trace = one_gap(300 * US)
    trace.add("python_function", "train.py(7): <module>", T - 100 * US, 900 * US, **{"Python id": 1, "Python parent id": None})
    trace.add("python_function", "train.py(42): log", T + 10 * US, 380 * US, **{"Python id": 2, "Python parent id": 1})
    trace.add("python_function", "torch/_tensor.py(9): wrapped", T + 12 * US, 370 * US, **{"Python id": 3, "Python parent id": 2})
    trace.add("python_function", "<built-in method item of Tensor object at 0x1>", T + 13 * US, 360 * US, **{"Python id": 4})
    trace.call("cudaStreamSynchronize", T + 20 * US, 340 * US)
    table = idle(TraceView(trace.read(tmp_path)))
    assert set(table["source"]) == {"train.py(42): log"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["loader", "sync", "malloc", "launch", "queued"]), min_size=1, max_size=25), st.integers(20, 900))
def test_plant_so_many_of_each_cause_and_find_so_many(tmp_path: Path, planted: list[str], length: int) -> None:
    trace, now = Planted(), T
    kernel, gap = 1_000 * US, length * US
    trace.kernel("k", now, kernel, launched=now - 20 * US, launch_duration=2 * US)
    for what in planted:
        end = now + kernel
        start = end + gap
        if what == "queued":
            trace.kernel("k", start, kernel, launched=now + 30 * US, launch_duration=2 * US)
        else:
            trace.kernel("k", start, kernel, launched=start - 3 * US, launch_duration=2 * US)
            busy = (end - 10 * US, start - 4 * US - (end - 10 * US))
            if what == "loader":
                trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", *busy)
            elif what in ("sync", "malloc"):
                trace.call({"sync": "cudaStreamSynchronize", "malloc": "cudaMalloc"}[what], *busy)
            else:
                trace.op("aten::add", *busy)
        now = start
    table = idle(TraceView(trace.read(tmp_path)))
    name = {
        "loader": "data_loading",
        "sync": "synchronisation",
        "malloc": "allocator",
        "launch": "host_launch",
        "queued": "kernel_wait",
    }
    for what, cause in name.items():
        if what in ("sync", "queued"):
            assert (table["cause"] == cause).sum() == planted.count(what)
        elif what != "launch":
            assert table.loc[table["cause"] == cause, "duration_ns"].sum() == planted.count(what) * (gap - 4 * US)
    assert table["gap"].nunique() == len(planted)
    assert table["duration_ns"].sum() == len(planted) * gap


def test_no_device_work_no_gaps(tmp_path: Path) -> None:
    trace = Planted()
    trace.add("cpu_op", "aten::add", T, US, tid=MAIN)
    table = idle(TraceView(trace.read(tmp_path)))
    assert table.empty
    assert by_cause(table).empty


def test_a_launch_that_itself_takes_long_is_told_from_one_that_comes_late(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("first", T, 100 * US, launched=T - 10 * US)
    trace.kernel("second", T + 6_004 * US, 50 * US, launched=T + 200 * US, launch_duration=5_800 * US)
    trace.op("aten::add", T + 50 * US, 6_000 * US)
    assert causes(trace, tmp_path) == {"host_launch": 104 * US, "slow_launch": 5_800 * US}


def test_a_kernel_that_starts_long_after_its_launch_waited_for_something_else(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("first", T, 100 * US, launched=T - 10 * US)
    trace.kernel("second", T + 600 * US, 50 * US, launched=T + 200 * US, launch_duration=5 * US)
    trace.op("aten::add", T + 50 * US, 500 * US)
    assert causes(trace, tmp_path) == {"host_launch": 105 * US, "kernel_wait": 395 * US}


@pytest.mark.parametrize(("before", "cause"), [(3, "host_launch"), (8, "kernel_gap")])
def test_a_launch_just_before_the_gap_made_it_and_an_earlier_one_did_not(tmp_path: Path, before: int, cause: str) -> None:
    trace = Planted()
    trace.kernel("first", T, 100 * US, launched=T - 10 * US)
    trace.kernel("second", T + 106 * US, 50 * US, launched=T + (100 - before - 2) * US, launch_duration=2 * US)
    assert causes(trace, tmp_path) == {cause: 6 * US}


@pytest.mark.parametrize(("gap", "cause"), [(10, "kernel_gap"), (11, "kernel_wait")])
def test_gaps_between_queued_kernels_are_the_devices_own_up_to_ten_microseconds(tmp_path: Path, gap: int, cause: str) -> None:
    trace = Planted()
    trace.kernel("first", T, 100 * US, launched=T - 10 * US)
    trace.kernel("second", T + (100 + gap) * US, 50 * US, launched=T + 10 * US)
    assert causes(trace, tmp_path) == {cause: gap * US}
