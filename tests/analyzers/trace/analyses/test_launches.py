"""Launches: every piece of device work is counted, linked or not, and the queue is never negative."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planting import Planted
from recorded import ALL, recorded
from tachoscope_analyzers.trace.analyses.launches import by_operator, by_step, launch_summary, queue_length, queue_summary
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read

US = 1_000
T = 1_000_000 * US


def row(trace: Planted, folder: Path) -> dict[str, float]:
    return launch_summary(TraceView(trace.read(folder))).iloc[0].to_dict()


@pytest.mark.parametrize("name", ALL or ["dlrm8/rank-0.json.gz"])
def test_no_device_work_of_a_sample_trace_is_dropped_and_its_queues_run_empty(name: str) -> None:
    view = TraceView(read(recorded(name)))
    table = launch_summary(view)
    if len(view.work):
        assert table["count"].sum() == len(view.work)
        assert (table["linked"] + table["unlinked"] == table["count"]).all()
    assert by_operator(view)["count"].sum() == len(view.work)
    queue = queue_length(view)
    assert (queue["queued"] >= 0).all()
    assert (queue.groupby(["device", "stream"])["queued"].last() == 0).all()


def test_work_with_and_without_a_launch_is_counted() -> None:
    table = launch_summary(TraceView(read(recorded("hta/diff_test_v100"))))
    assert table["count"].sum() == 15_632
    assert table["unlinked"].sum() == 614


def test_delays_early_starts_and_clock_disorder_are_told_apart(tmp_path: Path) -> None:
    trace = Planted()
    for number, start in enumerate((30, 35, 3, -4)):  # after the call of 5 us, and after it, during it, before it
        at = T + number * 100 * US
        trace.kernel("k", at + start * US, 20 * US, launched=at, launch_duration=5 * US)
    found = row(trace, tmp_path)
    assert (found["delay_mean_ns"], found["delay_max_ns"]) == (27.5 * US, 30 * US)
    assert (found["early"], found["clock_disorder"]) == (2, 1)
    assert (found["calls"], found["call_mean_ns"], found["call_total_ns"]) == (4, 5 * US, 20 * US)


def test_short_kernels_take_less_time_than_their_launch(tmp_path: Path) -> None:
    trace = Planted()
    for number in range(23):
        trace.kernel("k", T + number * 100 * US, 2 * US if number < 9 else 20 * US, launched=T + number * 100 * US - 10 * US)
    found = row(trace, tmp_path)
    assert (found["short"], round(found["short_percent"], 2)) == (9, round(900 / 23, 2))


def test_one_launch_of_a_graph_is_one_call_and_its_delay_that_of_its_first_kernel(tmp_path: Path) -> None:
    trace = Planted()
    graph = trace.call("cudaGraphLaunch", T, 5 * US)
    for number in range(10):
        trace.device("kernel", "k", T + (15 + number * 20) * US, 10 * US, correlation=graph)
    found = row(trace, tmp_path)
    assert (found["in_graphs"], found["calls"], found["delay_max_ns"]) == (10, 1, 10 * US)
    operators = by_operator(TraceView(trace.read(tmp_path)))
    assert operators["call_total_ns"].sum() == 5 * US


def test_launches_are_summed_by_their_outermost_operator_and_by_step(tmp_path: Path) -> None:
    trace = Planted()
    for step in range(2):
        at = T + step * 1_000 * US
        trace.step(step, at, 1_000 * US)
        trace.op("aten::linear", at + 10 * US, 100 * US)
        trace.op("aten::addmm", at + 20 * US, 80 * US)
        trace.kernel("k", at + 200 * US, 50 * US, launched=at + 30 * US)
        trace.kernel("k", at + 250 * US, 50 * US, launched=at + 40 * US)
        trace.kernel("k", at + 300 * US, 10 * US, launched=at + 150 * US)
    view = TraceView(trace.read(tmp_path))
    table = by_operator(view).set_index("operator")
    assert table["device_total_ns"].to_dict() == {"aten::linear": 200 * US, "": 20 * US}
    assert table["calls"].to_dict() == {"aten::linear": 4, "": 2}
    steps = by_step(view)
    assert steps["launches"].tolist() == [3, 3]
    assert steps["call_ns"].tolist() == [15 * US, 15 * US]
    assert steps["call_percent"].tolist() == [1.5, 1.5]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 300), st.integers(1, 200)), min_size=1, max_size=30))
def test_the_integral_of_the_queue_is_the_time_all_work_spent_in_it(tmp_path: Path, planted: list[tuple[int, int, int]]) -> None:
    trace, free, waited = Planted(), {}, 0
    for number, (stream, delay, duration) in enumerate(planted):
        launched = T + number * 20 * US
        start = max(free.get(stream, 0), launched + delay * US)
        trace.kernel("k", start, duration * US, launched=launched, stream=stream)
        free[stream] = start + duration * US
        waited += free[stream] - min(launched, start)
    view = TraceView(trace.read(tmp_path))
    table = queue_summary(view)
    assert (table["queued_mean"] * table["span_ns"]).sum() == pytest.approx(waited)
    assert table["queued_max"].max() <= len(planted)
    assert (queue_length(view)["queued"] >= 0).all()


def test_a_host_trace_has_no_launches(tmp_path: Path) -> None:
    trace = Planted()
    trace.op("aten::add", T, US)
    view = TraceView(trace.read(tmp_path))
    for table in (launch_summary(view), by_operator(view), queue_length(view), queue_summary(view)):
        assert table.empty
    assert by_step(view)["launches"].tolist() == [0]
