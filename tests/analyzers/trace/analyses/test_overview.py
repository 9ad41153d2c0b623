"""Bins of an overview hold each nanosecond once, and sum to what the other analyses find."""

from pathlib import Path

import numpy as np
import pytest

from planting import MAIN, Planted
from recorded import recorded
from tachoscope_analyzers.trace.analyses.overview import Row, edges, extent, streams, summary_rows, threads
from tachoscope_analyzers.trace.device_time.breakdown import breakdown
from tachoscope_analyzers.trace.device_time.ledger import step_states
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read

US = 1_000
MS = 1_000_000


def totals(row: Row) -> dict[str, int]:
    return dict(zip(row.states, row.times.sum(axis=0).tolist(), strict=True))


def two_streams() -> Planted:
    """10 ms of compute, communication beside the last 4; 3 ms of that alone, 2 ms of a copy, 5 ms of nothing, 1 ms of compute."""
    planted = Planted()
    planted.step(0, 0, 25 * MS)
    planted.op("aten::mm", 0, 2 * MS)
    planted.kernel("sgemm", 1 * MS, 10 * MS, launched=500 * US)
    planted.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 7 * MS, 7 * MS, launched=600 * US, stream=20)
    planted.device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 14 * MS, 2 * MS)
    planted.kernel("sgemm", 21 * MS, 1 * MS, launched=20 * MS)
    return planted


def test_what_was_planted_is_found_in_its_bins(tmp_path: Path) -> None:
    view = TraceView(two_streams().read(tmp_path))

    (row,) = summary_rows(view, edges(0, 25 * MS, 25))

    def state(*bins: int) -> dict[str, float]:
        share = row.shares[list(bins)].mean(axis=0)
        return {name: float(value) for name, value in zip(row.states, share, strict=True) if value}

    assert row.name == "device 0"
    assert state(0) == {"outside": 1.0}
    assert state(*range(1, 7)) == {"compute": 1.0}
    assert state(*range(7, 11)) == {"overlap": 1.0}
    assert state(11, 12, 13) == {"communication": 1.0}
    assert state(14, 15) == {"copies": 1.0}
    assert state(*range(16, 21)) == {"idle": 1.0}
    assert state(21) == {"compute": 1.0}
    assert state(22, 23, 24) == {"outside": 1.0}


def test_the_share_of_computing_is_of_the_time_that_is_known(tmp_path: Path) -> None:
    view = TraceView(two_streams().read(tmp_path))

    (row,) = summary_rows(view, edges(0, 25 * MS, 3))

    assert row.computing == pytest.approx(11 / 21)


def test_streams_and_threads_have_rows_of_their_own(tmp_path: Path) -> None:
    view = TraceView(two_streams().read(tmp_path))
    bounds = edges(0, 25 * MS, 25)

    seven, twenty = streams(view, bounds)
    (main,) = threads(view, bounds)

    assert totals(seven) == {"compute": 11 * MS, "communication": 0, "copies": 2 * MS, "idle": 12 * MS}
    assert totals(twenty) == {"compute": 0, "communication": 7 * MS, "copies": 0, "idle": 18 * MS}
    assert main.name == f"thread {MAIN}"
    assert totals(main) == {"call": 15 * US, "operator": 2 * MS - 10 * US, "annotation": 23 * MS - 5 * US, "nothing": 0}


@pytest.mark.parametrize(
    "name",
    [
        "dlrm8/rank-0",
        "hta/mtia_inference",
        "tracelens/h100_qwen1.5_0.5b",
        "hta/cpu_only_rank34",
        "hta/rank_unavailable",
        "hta/tiny_rank70",
        "hta/a100_event_sync_multi_stream",
    ],
)
def test_recorded_traces_sum_to_their_breakdown_in_any_number_of_bins(name: str) -> None:
    view = TraceView(read(recorded(name)))
    for bins in (1, 7, 800):
        bounds = edges(*extent(view.trace), bins)
        rows = summary_rows(view, bounds)
        for row in [*rows, *streams(view, bounds), *threads(view, bounds)]:
            assert (row.times >= 0).all()
            assert (row.times.sum(axis=1) == np.diff(bounds)).all()
            np.testing.assert_allclose(row.shares.sum(axis=1), 1)
        for row, told in zip(rows, breakdown(view).to_dict("records"), strict=False):
            found = totals(row)
            assert found["compute"] + found["overlap"] == told["compute_ns"]
            assert found["overlap"] == told["overlap_ns"]
            assert found["communication"] == told["exposed_communication_ns"]
            assert found["copies"] == told["exposed_copies_ns"]
            assert found["idle"] == told["idle_ns"]


def test_a_trace_without_a_device_has_the_states_of_its_host(tmp_path: Path) -> None:
    planted = Planted()
    for step in range(4):
        begin = 10 * MS * step
        planted.step(step, begin, 10 * MS)
        planted.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, 4 * MS)
        planted.op("aten::mm", begin + 4 * MS, 5 * MS)
    view = TraceView(planted.read(tmp_path))

    (row,) = summary_rows(view, edges(*extent(view.trace), 40))

    found = totals(row)
    assert row.name == "host"
    assert (found["data_wait"], found["compute"], found["host_wait"]) == (16 * MS, 20 * MS, 4 * MS)
    states = step_states(view)
    assert found["data_wait"] == states["data_wait_ns"].sum()


def test_an_empty_trace_has_no_rows(tmp_path: Path) -> None:
    view = TraceView(Planted().read(tmp_path))

    assert extent(view.trace) == (0, 0)
    assert summary_rows(view, edges(0, 0)) == streams(view, edges(0, 0)) == threads(view, edges(0, 0)) == []


def test_of_many_streams_the_busiest_are_kept_in_order(tmp_path: Path) -> None:
    planted = Planted()
    for stream in range(30):
        for number in range(1 + stream % 5):
            planted.kernel("k", 10 * US * number, 5 * US, stream=stream)
    view = TraceView(planted.read(tmp_path))

    found = streams(view, edges(*extent(view.trace), 4), most=6)

    assert [row.name for row in found] == [f"stream {number}" for number in (4, 9, 14, 19, 24, 29)]
