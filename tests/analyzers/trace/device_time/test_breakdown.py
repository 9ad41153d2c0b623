"""Each device nanosecond is counted once, and equals what the raw events say."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import raw
from planting import Planted
from recorded import ALL, recorded
from tachoscope_analyzers.trace.device_time.breakdown import breakdown, by_step
from tachoscope_analyzers.trace.device_time.kernels import by_class, summary
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read

US = 1_000


@pytest.mark.parametrize("name", ALL or ["dlrm8/rank-0.json.gz"])
def test_every_sample_trace_equals_the_raw_events_to_the_nanosecond(name: str) -> None:
    path = recorded(name)
    view = TraceView(read(path))
    table, kernels, classes = (frame.set_index("device") for frame in (breakdown(view), summary(view), by_class(view)))
    devices = raw.device_spans(raw.events(path))
    assert set(table.index) == set(devices)
    for device, found in devices.items():
        spans = [span for _, _, span in found]
        communication = [span for what, text, span in found if what == "kernel" and "nccl" in text]
        compute = [span for what, text, span in found if what == "kernel" and "nccl" not in text]
        copies = [span for what, _, span in found if what != "kernel"]
        row = table.loc[device]
        assert row["span_ns"] == max(end for _, end in spans) - min(start for start, _ in spans)
        assert row["busy_ns"] == raw.length(spans)
        assert row["idle_ns"] == row["span_ns"] - raw.length(spans)
        assert row["compute_ns"] == raw.length(compute)
        assert row["communication_ns"] == raw.length(communication)
        assert row["copies_ns"] == raw.length(copies)
        assert row["overlap_ns"] == raw.length(communication, compute)
        assert row["exposed_communication_ns"] == raw.length(communication, minus=(compute,))
        assert row["exposed_copies_ns"] == raw.length(copies, minus=(compute, communication))
        total = sum(end - start for what, _, (start, end) in found if what == "kernel")
        assert kernels.loc[device, "total_ns"] == total
        assert kernels.loc[device, "kernels"] == len(compute) + len(communication)
        assert classes.loc[[device], "total_ns"].sum() == sum(end - start for start, end in spans)


@pytest.mark.parametrize(
    ("name", "idle", "compute", "overlap"),
    [
        ("kineto/resnet50_nw0_a.pt.trace", 39.43, None, None),
        ("kineto/resnet50_nw4_a.pt.trace", 23.35, None, None),
        ("hta/a100_nccl_2rank_rank0", 76.16, 17.51, 15.6),
        ("hta/diff_control_a100", 16.36, 60.56, 46.2),
        ("hta/diff_test_v100", 3.66, 73.55, 70.8),
        ("hta/v100_nccl_2rank_rank1", 42.26, 35.81, 0.0),
        ("hta/v100_ns_resolution", 1.58, None, None),
        ("tracelens/vllm_decode_full", 0.24, None, None),
        ("tracelens/sglang_qwen3_8b_decode", 97.94, None, None),
        ("tracelens/h100_qwen1.5_0.5b", 8.07, None, None),
    ],
)
def test_figures_of_an_independent_program_come_out(name: str, idle: float, compute: float | None, overlap: float | None) -> None:
    row = breakdown(TraceView(read(recorded(name)))).iloc[0]
    assert row["idle_percent"] == pytest.approx(idle, abs=0.005)
    assert compute is None or row["compute_percent"] == pytest.approx(compute, abs=0.005)
    assert overlap is None or row["overlap_percent"] == pytest.approx(overlap, abs=0.05)


PIECES = st.lists(
    st.tuples(
        st.sampled_from(["kernel", "nccl", "copy"]),
        st.integers(0, 3),  # stream
        st.integers(0, 400),  # pause before it
        st.integers(0, 300),  # duration
    ),
    min_size=1,
    max_size=40,
)


def planted(pieces: list[tuple[str, int, int, int]]) -> tuple[Planted, dict[str, list[tuple[int, int]]]]:
    trace, clock = Planted(), {}
    truth: dict[str, list[tuple[int, int]]] = {"kernel": [], "nccl": [], "copy": []}
    names = {
        "kernel": ("kernel", "sgemm"),
        "nccl": ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        "copy": ("gpu_memcpy", "Memcpy HtoD"),
    }
    for what, stream, pause, duration in pieces:
        start = clock.get(stream, 1_000_000) + pause
        clock[stream] = start + duration
        trace.device(*names[what], start, duration, stream=stream)
        truth[what].append((start, start + duration))
    return trace, truth


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PIECES)
def test_planted_work_comes_back_to_the_nanosecond(tmp_path: Path, pieces: list[tuple[str, int, int, int]]) -> None:
    trace, truth = planted(pieces)
    view = TraceView(trace.read(tmp_path))
    row = breakdown(view).iloc[0]
    everything = truth["kernel"] + truth["nccl"] + truth["copy"]
    span = max(end for _, end in everything) - min(start for start, _ in everything)
    assert row["span_ns"] == span
    assert row["idle_ns"] == span - raw.length(everything)
    assert row["compute_ns"] == raw.length(truth["kernel"])
    assert row["overlap_ns"] == raw.length(truth["nccl"], truth["kernel"])
    assert row["exposed_communication_ns"] == raw.length(truth["nccl"], minus=(truth["kernel"],))
    assert row["exposed_copies_ns"] == raw.length(truth["copy"], minus=(truth["kernel"], truth["nccl"]))
    steps = by_step(view)
    assert steps["span_ns"].sum() == span
    assert steps["busy_ns"].sum() == row["busy_ns"]


def test_a_kernel_without_a_launch_counts_all_the_same(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("sgemm", 1_000 * US, 10 * US, launched=980 * US)
    trace.device("kernel", "sgemm", 1_020 * US, 10 * US, correlation=999)
    row = breakdown(TraceView(trace.read(tmp_path))).iloc[0]
    assert (row["busy_ns"], row["idle_ns"]) == (20 * US, 10 * US)


def test_an_operator_with_a_stream_argument_is_no_kernel_and_a_synchronisation_on_the_device_no_work(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("sgemm", 1_000 * US, 10 * US)
    trace.op("aten::record_stream", 1_030 * US, 50 * US, stream=7)
    trace.device("cuda_sync", "Stream Sync", 1_040 * US, 50 * US)
    trace.kernel("sgemm", 1_100 * US, 10 * US)
    assert breakdown(TraceView(trace.read(tmp_path))).iloc[0]["busy_ns"] == 20 * US


def test_devices_are_told_apart(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("sgemm", 1_000 * US, 10 * US, device=0)
    trace.kernel("sgemm", 1_000 * US, 30 * US, device=1)
    trace.kernel("sgemm", 1_050 * US, 10 * US, device=1)
    table = breakdown(TraceView(trace.read(tmp_path)))
    assert table[["device", "busy_ns", "idle_ns"]].to_numpy().tolist() == [[0, 10 * US, 0], [1, 40 * US, 20 * US]]


def test_a_trace_without_device_work_has_an_empty_table(tmp_path: Path) -> None:
    trace = Planted()
    trace.op("aten::add", 1_000 * US, 10 * US)
    view = TraceView(trace.read(tmp_path))
    assert breakdown(view).empty
    assert by_step(view).empty
    assert "idle_ns" in breakdown(view)


def test_steps_sum_to_the_window_of_a_trace_whose_last_kernels_outrun_the_host(tmp_path: Path) -> None:
    trace = Planted()
    for number in range(3):
        trace.step(number, (1_000 + 100 * number) * US, 100 * US)
        for kernel in range(4):
            at = 1_000 + 100 * number + 10 * kernel
            trace.kernel("sgemm", (1_010 + (4 * number + kernel) * 60) * US, 60 * US, launched=at * US)
    table = by_step(TraceView(trace.read(tmp_path)))
    assert table["busy_ns"].sum() == 12 * 60 * US  # nothing of the last step is lost
    assert table["busy_ns"].tolist() == [4 * 60 * US] * 3  # and each step has its own kernels
