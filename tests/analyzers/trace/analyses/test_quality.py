"""The verdict on the data: a fault is named when it is there, and only then."""

from pathlib import Path

import pytest

from planting import Planted
from recorded import ALL, recorded
from tachoscope_analyzers.trace.analyses.data_quality import COLUMNS, quality
from tachoscope_analyzers.trace.device_time.breakdown import breakdown
from tachoscope_analyzers.trace.device_time.ledger import step_states
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read

US = 1_000
T = 1_000_000 * US


def sound(steps: int = 23) -> Planted:
    trace = Planted()
    for step in range(steps):
        at = T + step * 1_000 * US
        trace.step(step, at, 1_000 * US)
        for kernel in range(5):
            trace.kernel("sgemm", at + (100 + kernel * 150) * US, 100 * US, launched=at + (50 + kernel * 150) * US)
    return trace


def verdict(trace: Planted, folder: Path) -> dict[str, tuple[float, str]]:
    table = quality(TraceView(trace.read(folder)))
    assert list(table.columns) == COLUMNS
    return {row["what"]: (row["value"], row["severity"]) for _, row in table.iterrows()}


def test_a_sound_trace_has_no_faults(tmp_path: Path) -> None:
    assert verdict(sound(), tmp_path) == {}


@pytest.mark.parametrize(
    "name", ["kineto/resnet50_nw0_a.pt.trace", "hta/diff_control_a100", "hta/v100_nccl_2rank_rank1", "hta/v100_ns_resolution"]
)
def test_sound_samples_have_none_either(name: str) -> None:
    assert quality(TraceView(read(recorded(name)))).empty


@pytest.mark.parametrize("name", ALL or ["dlrm8/rank-0.json.gz"])
def test_every_sample_has_a_verdict_the_gravest_first(name: str) -> None:
    order = ["critical", "warning", "info"]
    severities = [order.index(severity) for severity in quality(TraceView(read(recorded(name))))["severity"]]
    assert severities == sorted(severities)


def test_a_cut_file_says_how_much_was_lost(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    whole = sound().text()
    path.write_text(whole[: len(whole) // 2])
    table = quality(TraceView(read(path))).set_index("what")
    assert table.loc["cut_file", "severity"] == "warning"
    assert 0 < table.loc["cut_file", "value"] < len(whole)


def test_steps_that_are_missing_are_counted(tmp_path: Path) -> None:
    trace = sound(3)
    for number in (10, 11, 15):
        trace.step(number, T + number * 1_000 * US, 900 * US)
        trace.kernel("sgemm", T + number * 1_000 * US + 20 * US, 800 * US, launched=T + number * 1_000 * US + 10 * US)
    assert verdict(trace, tmp_path)["missing_steps"] == (7 + 3, "warning")


def test_one_step_is_too_short_a_window_and_none_is_told_too(tmp_path: Path) -> None:
    assert verdict(sound(1), tmp_path)["window_too_short"] == (1, "warning")
    trace = Planted()
    trace.kernel("sgemm", T, 10 * US, launched=T - 10 * US)
    assert verdict(trace, tmp_path)["no_steps"] == (0, "warning")


def test_device_work_in_two_steps_of_32_does_not_pass_for_a_busy_device(tmp_path: Path) -> None:
    trace = Planted()
    for step in range(32):
        trace.step(step, T + step * 1_000 * US, 1_000 * US)
    for kernel in range(200):
        at = T + 30 * 1_000 * US + kernel * 10 * US
        trace.kernel("sgemm", at, 10 * US, launched=at - 20 * US)
    assert breakdown(TraceView(trace.read(tmp_path))).iloc[0]["idle_ns"] == 0
    found = verdict(trace, tmp_path)
    assert found["steps_without_device_work"][1] == "critical"
    assert found["device_seen_for_a_part"] == (pytest.approx(100 * 2 / 32, abs=0.1), "critical")


def test_lost_kernels_and_lost_launches_are_counted(tmp_path: Path) -> None:
    trace = sound()
    for lost in range(3):
        trace.call("cudaLaunchKernel", T + (10 + lost * 10) * US, 5 * US)
    for unlinked in range(7):
        trace.device("kernel", "sgemm", T + (201 + unlinked * 5) * US, 5 * US, correlation=10_000 + unlinked)
    found = verdict(trace, tmp_path)
    assert found["launches_without_kernel"] == (3, "warning")
    assert found["work_without_launch"] == (7, "warning")


def test_a_trace_of_launches_without_any_kernel_says_nothing_of_the_device(tmp_path: Path) -> None:
    trace = Planted()
    trace.step(0, T, 100 * US)
    trace.step(1, T + 100 * US, 100 * US)
    trace.op("aten::add", T, 10 * US)
    assert verdict(trace, tmp_path)["no_device_events"] == (0, "info")
    trace.call("cudaLaunchKernel", T, 5 * US)
    assert verdict(trace, tmp_path)["no_device_events"] == (0, "critical")


def cut(trace: Planted, folder: Path, before: str) -> TraceView:
    """The trace with its file cut before the first event of a category."""
    path, whole = folder / "cut.json", trace.text()
    path.write_text(whole[: whole.index(f'"cat": "{before}"')])
    return TraceView(read(path))


def kineto_order() -> Planted:
    """Operators first, then calls of the runtime, then kernels, as Kineto writes them."""
    trace = sound()
    trace.op("aten::mm", T + 40 * US, 800 * US)
    order = ["user_annotation", "cpu_op", "cuda_runtime", "kernel"]
    trace.events.sort(key=lambda text: next(place for place, cat in enumerate(order) if f'"cat": "{cat}"' in text))
    return trace


@pytest.mark.parametrize("before", ["cuda_runtime", "kernel"])
def test_a_cut_that_took_the_devices_work_leaves_nothing_to_be_said_of_the_device(tmp_path: Path, before: str) -> None:
    view = cut(kineto_order(), tmp_path, before)
    table = quality(view).set_index("what")
    assert table.loc["device_work_cut_away", "severity"] == "critical"
    assert "compute share" in table.loc["device_work_cut_away", "meaning"]
    ledger = step_states(view)
    assert (ledger["unexplained_ns"] == ledger["duration_ns"]).all()


def test_a_cut_that_left_most_kernels_leaves_their_ledger(tmp_path: Path) -> None:
    trace = kineto_order()
    path, whole = tmp_path / "cut.json", trace.text()
    kernels = [place for place in range(len(whole)) if whole.startswith('"cat": "kernel"', place)]
    for kept, severity in ((0.8, set()), (0.3, {"critical"})):
        path.write_text(whole[: kernels[int(kept * len(kernels))]])
        table = quality(TraceView(read(path)))
        assert set(table.loc[table["what"] == "device_work_cut_away", "severity"]) == severity


def test_a_trace_of_something_else_is_no_trace_of_training(tmp_path: Path) -> None:
    trace = Planted()
    for number in range(50):
        trace.add("toplevel", "RunTask", T + number * 2_000 * US, 100 * US)
    view = TraceView(trace.read(tmp_path))
    assert quality(view).set_index("what").loc["nothing_known", "severity"] == "critical"
    assert step_states(view)["unexplained_ns"].sum() == step_states(view)["duration_ns"].sum() > 0


def test_kernels_before_their_launch_are_disorder_of_the_clocks(tmp_path: Path) -> None:
    trace = sound()
    for number in range(4):
        at = T + number * 1_000 * US + 900 * US
        trace.kernel("sgemm", at, 20 * US, launched=at + 7 * US)
    assert verdict(trace, tmp_path)["clock_disorder"] == (4, "warning")


def test_a_duration_that_overflows_its_stream_is_cut_and_told(tmp_path: Path) -> None:
    trace = sound()
    trace.device("kernel", "overflowing", T + 90 * US, 3_600_000_000 * US, correlation=1_000_000)
    view = TraceView(trace.read(tmp_path))
    table = quality(view).set_index("what")
    assert table.loc["overflowing_durations", "value"] == 3_600_000_000 * US - 10 * US
    assert breakdown(view).iloc[0]["span_ns"] == 22_800 * US - 90 * US


def test_kernels_that_reach_into_the_next_one_are_told_and_kept(tmp_path: Path) -> None:
    trace = sound()
    trace.device("kernel", "early", T + 195 * US, 10 * US, correlation=1)
    assert verdict(trace, tmp_path)["overlap_on_one_stream"] == (1, "info")


def test_the_profilers_own_time_in_the_steps_is_told(tmp_path: Path) -> None:
    trace = sound(10)
    trace.add("overhead", "Activity Buffer Request", T, 2_000 * US)
    assert verdict(trace, tmp_path)["profiler_overhead"] == (2_000 * US, "warning")


def test_events_that_lost_their_time_are_told(tmp_path: Path) -> None:
    trace = sound()
    for event in range(len(trace.events)):
        trace.events[event] = trace.events[event].replace('"ts": 1', '"ts": 1700000001')
    trace.op("aten::lost", 0, 10 * US)
    found = verdict(trace, tmp_path)
    assert found["events_at_zero"] == (1, "warning")


def test_mended_and_negative_events_are_counted(tmp_path: Path) -> None:
    trace = sound()
    trace.op("aten::add", T, 10 * US)
    trace.events[-1] = trace.events[-1].replace('"dur": 10.000', '"dur": -4')
    assert verdict(trace, tmp_path)["negative_durations"][0] == 1


def test_no_event_at_all_is_critical(tmp_path: Path) -> None:
    assert verdict(Planted(), tmp_path) == {"no_events": (0, "critical")}
