"""Known defects of other trace analysers, each with the figure that one without it gives; public issues stand above the tests.

Three have their test where it belongs: ranks in compact JSON in `test_ranks`, operators with a `stream` argument in
`test_breakdown`, and a device that is seen in 2 of 32 steps only in `test_quality`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from planting import Planted
from planting_ranks import NAMES, Group, PlantedJob
from tachoscope_analyzers.trace.analyses.data_quality import quality
from tachoscope_analyzers.trace.analyses.launches import launch_summary
from tachoscope_analyzers.trace.device_time.breakdown import breakdown, by_step
from tachoscope_analyzers.trace.device_time.kernels import by_class, by_name, summary
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.findings.report import report
from tachoscope_analyzers.trace.ranks.executor import InProcess
from tachoscope_analyzers.trace.ranks.job import read_job
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
from tachoscope_analyzers.trace.reading.read import read

US = 1_000
T = 1_700_000_000_000_000 * US
ALL_REDUCE = NAMES["all_reduce"][1]


def seen(trace: Planted, folder: Path) -> TraceView:
    return TraceView(trace.read(folder))


def device(view: TraceView) -> pd.Series:
    (row,) = (row for _, row in breakdown(view).iterrows())
    return row


def notes(view: TraceView) -> dict[str, tuple[float, str]]:
    return {row["what"]: (row["value"], row["severity"]) for _, row in quality(view).iterrows()}


# https://github.com/AMD-AGI/TraceLens/issues/106: only kernels that are linked to an operator were counted.
def test_work_that_no_operator_or_call_explains_is_busy_time_and_communication(tmp_path: Path) -> None:
    trace = Planted()
    trace.op("aten::mm", T, 20 * US)
    trace.kernel("sgemm", T + 30 * US, 10 * US, launched=T + 5 * US)
    trace.kernel(ALL_REDUCE, T + 40 * US, 50 * US, launched=T + 25 * US, stream=20)  # by a call outside of any operator
    trace.device("kernel", ALL_REDUCE, T + 90 * US, 30 * US, stream=20, correlation=999)  # by no call at all
    row = device(seen(trace, tmp_path))
    assert (row["busy_ns"], row["idle_ns"], row["communication_ns"]) == (90 * US, 0, 80 * US)


# https://github.com/facebookresearch/HolisticTraceAnalysis/issues/76: the last step, and what was launched before the first, went.
def test_the_last_step_and_work_from_before_the_first_are_kept(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("sgemm", T, 30 * US, launched=T - 50 * US)
    for step in range(3):
        begin = T + (10 + 100 * step) * US
        trace.step(step, begin, 100 * US)
        trace.kernel("sgemm", begin + 30 * US, 90 * US, launched=begin + 10 * US)  # runs on into the next step
    view = seen(trace, tmp_path)
    row = device(view)
    assert (row["span_ns"], row["busy_ns"]) == (330 * US, 30 * US + 3 * 90 * US)
    steps = by_step(view)
    assert steps["step"].tolist() == [0, 1, 2]
    assert steps["busy_ns"].iloc[-1] == 90 * US
    assert steps["start_ns"].iloc[-1] + steps["span_ns"].iloc[-1] == T + 330 * US


# https://github.com/pytorch/pytorch/issues/122425 is why HTA rounds starts up and ends down to whole microseconds.
def test_kernels_and_gaps_shorter_than_a_microsecond_are_neither_lost_nor_grown(tmp_path: Path) -> None:
    trace = Planted()
    for number in range(1_000):
        trace.device("kernel", "decode", T + number * 1_001, 700, correlation=number)
    row = device(seen(trace, tmp_path))
    assert (row["busy_ns"], row["idle_ns"]) == (700_000, 999 * 301)


# https://github.com/facebookresearch/HolisticTraceAnalysis/pull/149: waits that stand on a stream counted as kernels.
def test_a_wait_that_a_device_of_mtia_does_is_no_work_and_what_it_copies_no_kernel(tmp_path: Path) -> None:
    trace = Planted()
    for name, begin, length in (("event_wait", 0, 40), ("pe_exe", 40, 10), ("event_record", 50, 5), ("dma_request", 60, 7)):
        trace.device("mtia_ccp_events", name, T + begin * US, length * US)
    view = seen(trace, tmp_path)
    row = device(view)
    assert (row["span_ns"], row["compute_ns"], row["copies_ns"], row["idle_ns"]) == (27 * US, 10 * US, 7 * US, 10 * US)
    assert by_class(view).set_index("class")["total_ns"].to_dict() == {"other": 10 * US, "memcpy": 7 * US}


# https://github.com/facebookresearch/HolisticTraceAnalysis/issues/91: numbers were squeezed into the smallest type of a sample.
def test_streams_devices_and_ids_of_any_size_stay_what_they_are(tmp_path: Path) -> None:
    sizes = [1, 200, 40_000, 3_000_000_000, 1 << 52]
    trace = Planted()
    for number, size in enumerate(sizes):
        begin = T + number * 100 * US
        trace.call("hipLaunchKernel", begin, 5 * US, tid=size, correlation=size)
        trace.device("kernel", f"k{size}", begin + 10 * US, 5 * US, stream=size, device=size, correlation=size)
    view = seen(trace, tmp_path)
    work = view.work
    assert work.device.tolist() == work.stream.tolist() == sizes
    assert view.trace.events["correlation"][work.row].tolist() == sizes
    assert view.trace.start[work.launch].tolist() == [T + number * 100 * US for number in range(len(sizes))]


# https://github.com/facebookresearch/HolisticTraceAnalysis/issues/360: collectives were known as ncclKernel_* only.
@pytest.mark.parametrize(
    "kernel",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_f32(ncclSymkDevWorkArgs4K)",
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
    ],
)
def test_the_straggler_is_found_however_the_kernels_of_its_collectives_are_called(tmp_path: Path, kernel: str) -> None:
    (tmp_path / "job").mkdir()
    job = PlantedJob(4, [Group("0", range(4))], late={2: 3_000_000}, named=False)
    for rank, trace in job.traces().items():
        trace.events = [event.replace(ALL_REDUCE, kernel) for event in trace.events]
        trace.write(tmp_path / "job" / f"{rank}.json")
    table = read_job([tmp_path / "job"], executor=InProcess()).stragglers
    assert table.loc[table["straggler"], "rank"].tolist() == [2]


# https://github.com/facebookresearch/HolisticTraceAnalysis/issues/241, https://github.com/AMD-AGI/TraceLens/pull/547
@pytest.mark.parametrize(
    "kernel",
    [
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
        "rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, vllm::RankSignals)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<__half, 8, true>(int)",
        "void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(aiter::RankData*)",
        "nvshmemi_transfer_rma_p2p",
        "void deep_ep::internode_ll::dispatch<true, 10, 7168>(void*)",
    ],
)
def test_no_kernel_that_moves_data_between_devices_passes_for_computing(tmp_path: Path, kernel: str) -> None:
    trace = Planted()
    trace.kernel("sgemm", T, 30 * US)
    trace.kernel(kernel, T + 20 * US, 40 * US, stream=20)
    row = device(seen(trace, tmp_path))
    assert (row["compute_ns"], row["communication_ns"], row["exposed_communication_ns"]) == (30 * US, 40 * US, 30 * US)


PEAK = """
import re, sys
from pathlib import Path
from tachoscope_analyzers.trace.reading.read import read
print(len(read(Path(sys.argv[1])).events), re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""


# https://github.com/facebookresearch/HolisticTraceAnalysis/issues/250: 200 GB of traces took 950 GB of memory.
@pytest.mark.bar  # memory
def test_five_times_the_events_take_no_more_memory_to_read(tmp_path: Path) -> None:
    trace = Planted()
    for number in range(1_000):
        at = T + number * 100 * US
        trace.op("aten::mm", at, 50 * US, **{"External id": number, "Input Dims": [[2, 3], [3, 4]]})
        trace.kernel("sgemm", at + 60 * US, 30 * US, launched=at + 10 * US, grid=[1, 2, 3])
    some, peak, size = trace.events, {}, {}
    for times in (20, 100):
        trace.events = some * times
        path = trace.write(tmp_path / f"{times}.json")
        done = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, timeout=600, check=True)
        events, peak[times] = map(int, done.stdout.split())
        assert events == len(trace.events)
        size[times] = path.stat().st_size >> 10
    assert peak[100] - peak[20] < (size[100] - size[20]) / 2, (peak, size)  # in KiB; an analyser that holds all takes a multiple


# https://github.com/facebookresearch/HolisticTraceAnalysis/issues/107, /148, /233, /238
def test_one_trace_without_rank_world_and_steps_has_its_report(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    trace = Planted(rank=None)
    trace.op("aten::mm", T, 20 * US)
    trace.kernel("sgemm", T + 30 * US, 10 * US, launched=T + 5 * US)
    trace.kernel("sgemm", T + 60 * US, 10 * US, launched=T + 10 * US)
    trace.write(tmp_path / "job" / "trace.json")
    found = report(read_job([tmp_path / "job"], executor=InProcess(), wanted=SummaryOptions(what_if=False)), "job")
    assert found.ranks == 1
    assert found.ledgers[0].wall_seconds == pytest.approx(40e-6)
    assert found.ledgers[0].states["compute"] == pytest.approx(20e-6)
    assert any("no steps" in note.what for note in found.quality)


# https://github.com/pytorch/pytorch/issues/136180, /130622, /98432 and https://github.com/pytorch/kineto/issues/988
def test_what_json_or_64_bits_cannot_hold_costs_no_event(tmp_path: Path) -> None:
    odd = [b'"k", "args": {"correlation": 18446744073709551616}', b'"caf\xe9"', b'"bell\x07"', b'"C:\\Users\\x"']
    events = [
        b'{"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": %d.5, "dur": 0.25, "name": ' % (10**15 + place) + rest + b"}"
        for place, rest in enumerate(odd)
    ]
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"schemaVersion": 1, "traceEvents": [' + b", ".join(events) + b"]}")
    view = TraceView(read(path))
    assert (view.work.end - view.work.start).tolist() == [250] * 4
    assert view.trace.names(view.work.row).tolist() == ["k", "caf\ufffd", "bell\x07", "C:\\Users\\x"]
    assert notes(view)["mended_events"] == (3, "warning")


# https://github.com/AMD-AGI/TraceLens/issues/728: a quarter of a decode with HIP graphs seemed idle.
def test_kernels_of_a_hip_graph_keep_the_device_busy_although_only_their_launch_is_linked(tmp_path: Path) -> None:
    trace = Planted()
    for replay in range(3):
        begin = T + replay * 1_000 * US
        graph = trace.call("hipGraphLaunch", begin, 20 * US)
        for kernel in range(99):
            trace.device("kernel", "decode", begin + (50 + kernel * 10) * US, 10 * US, correlation=graph)
    view = seen(trace, tmp_path)
    assert device(view)["idle_ns"] == 2 * 10 * US
    assert summary(view).iloc[0]["in_graphs_percent"] == 100
    assert "graph_launches_without_work" not in notes(view)


def test_replays_of_a_graph_that_the_profiler_lost_are_told_before_anyone_believes_the_idle_time(tmp_path: Path) -> None:
    trace = Planted()
    for replay in range(4):
        graph = trace.call("hipGraphLaunch", T + replay * 1_000 * US, 20 * US)
        if replay in (0, 3):
            trace.device("kernel", "decode", T + (replay * 1_000 + 50) * US, 900 * US, correlation=graph)
    assert notes(seen(trace, tmp_path))["graph_launches_without_work"] == (2, "warning")


# https://github.com/AMD-AGI/TraceLens/issues/669: durations that reach over the next events of their stream.
def test_durations_that_overflow_one_after_the_other_are_cut_to_the_next_kernel(tmp_path: Path) -> None:
    trace = Planted()
    for number in range(5):
        length = 1_600_000 * US if number in (1, 2, 3) else 8 * US  # 1.6 s, three times in a row
        trace.device("kernel", f"k{number}", T + number * 10 * US, length)
    view = seen(trace, tmp_path)
    assert by_name(view).set_index("name")["total_ns"].to_dict() == {f"k{n}": (10 if n in (1, 2, 3) else 8) * US for n in range(5)}
    assert (device(view)["span_ns"], device(view)["idle_ns"]) == (48 * US, 2 * US)
    assert notes(view)["overflowing_durations"][1] == "warning"


def merged(ranks: int, folder: Path) -> TraceView:
    """Ranks of a job in one file, as SGLang's profiler merges them: only the processes get other names.

    Each rank computes 30 us, less 1 us for each rank before it, and its host is 2 us behind that of the rank before it.
    """
    trace = Planted(rank=0, world_size=ranks)
    for rank in range(ranks):
        own, place = Planted(), f"[TP{rank:02d}] "
        for step in range(4):
            begin = T + (100 * step + 2 * rank) * US
            own.step(step, begin, 100 * US)
            own.op("aten::mm", begin + US, 20 * US)
            own.kernel(f"rank {rank}", begin + 15 * US, (30 - rank) * US, launched=begin + 5 * US)
        trace.events += [re.sub(r'"pid": (\d+)', rf'"pid": "{place}\1"', event) for event in own.events]
    return seen(trace, folder)


# https://github.com/AMD-AGI/TraceLens/pull/577: ranks count alike, so kernels were laid to the calls of other ranks.
def test_ranks_that_were_merged_into_one_file_keep_their_devices_and_launches(tmp_path: Path) -> None:
    view = merged(3, tmp_path)
    trace, work = view.trace, view.work
    place = np.array([track.process.split()[0] for track in trace.meta.tracks])[trace.events["track"]]
    assert (work.launch >= 0).all()
    assert (place[work.row] == place[work.launch]).all()
    table = breakdown(view)
    assert table["device"].tolist() == [0, 1, 2]  # all three call theirs 0
    assert table["busy_ns"].tolist() == [4 * (30 - rank) * US for rank in range(3)]
    assert notes(view)["several_processes"] == (3, "warning")


# https://github.com/pytorch/kineto/issues/1380 and https://github.com/pytorch/pytorch/issues/192021: faults of the profiler itself.
def test_kernels_before_their_launch_have_no_negative_delay_and_lost_ones_are_told(tmp_path: Path) -> None:
    trace = Planted()
    for number in range(10):
        trace.call("cudaLaunchKernel", T + number * 10 * US, 5 * US)  # their kernels came before the profiler looked
    trace.kernel("sgemm", T + 200 * US, 10 * US, launched=T + 204 * US)
    trace.kernel("sgemm", T + 300 * US, 10 * US, launched=T + 290 * US)
    view = seen(trace, tmp_path)
    row = launch_summary(view).iloc[0]
    assert (row["clock_disorder"], row["delay_mean_ns"], row["delay_max_ns"]) == (1, 5 * US, 5 * US)
    assert notes(view)["launches_without_kernel"] == (10, "warning")
    assert notes(view)["clock_disorder"] == (1, "warning")


# https://github.com/pytorch/pytorch/issues/188481: in the second half of a trace nearly all events stand at 0.
@pytest.mark.parametrize("lost", [1, 60])
def test_events_that_lost_their_time_do_not_stretch_the_trace_back_to_1970(tmp_path: Path, lost: int) -> None:
    trace = Planted()
    for number in range(10):
        trace.op("aten::mm", T + number * 100 * US, 20 * US)
        trace.kernel("sgemm", T + (number * 100 + 30) * US, 60 * US, launched=T + (number * 100 + 5) * US)
    for _ in range(lost):
        trace.op("aten::mm", 0, 0)
        trace.kernel("sgemm", 0, 0, launched=0, launch_duration=0)
    view = seen(trace, tmp_path)
    row = device(view)
    assert (row["start_ns"], row["span_ns"], row["busy_ns"]) == (T + 30 * US, 960 * US, 600 * US)
    assert view.steps.start[0] >= T
    assert notes(view)["events_at_zero"] == (3 * lost, "warning")


# No issue: analysers that know only today's categories find no device work in old traces.
def test_a_trace_of_2021_has_the_figures_of_the_same_trace_in_todays_words(tmp_path: Path) -> None:
    trace = Planted()
    for step in range(3):
        begin = T + step * 100 * US
        trace.step(step, begin, 100 * US)
        trace.op("aten::mm", begin + 5 * US, 20 * US)
        trace.kernel("sgemm", begin + 30 * US, 20 * US, launched=begin + 10 * US)
        trace.device("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", begin + 60 * US, 5 * US)
        trace.device("gpu_memset", "Memset (Device)", begin + 70 * US, 5 * US)
    today = seen(trace, tmp_path)
    old = trace.text()
    for new_word, old_word in (
        ("user_annotation", "Operator"),
        ("cpu_op", "Operator"),
        ("cuda_runtime", "Runtime"),
        ("kernel", "Kernel"),
        ("gpu_memcpy", "Memcpy"),
        ("gpu_memset", "Memset"),
    ):
        old = old.replace(f'"cat": "{new_word}"', f'"cat": "{old_word}"')
    (tmp_path / "old.json").write_text(old)
    then = TraceView(read(tmp_path / "old.json"))
    assert device(today)["busy_ns"] == 3 * 30 * US
    for figures in (breakdown, by_step, by_class, launch_summary):
        pd.testing.assert_frame_equal(figures(then), figures(today))
