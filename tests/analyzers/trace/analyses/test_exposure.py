from pathlib import Path

import numpy as np

from planting import Planted
from tachoscope_analyzers.trace.analyses.collectives import ROW
from tachoscope_analyzers.trace.analyses.exposed_communication import Computing
from tachoscope_analyzers.trace.events.view import TraceView


def table(*rows: tuple[str, int, int, int]) -> np.ndarray:
    found = np.zeros(len(rows), dtype=ROW)
    for name, values in zip(("side", "device", "start_ns", "end_ns"), zip(*rows, strict=True), strict=True):
        found[name] = values
    found["duration_ns"] = found["end_ns"] - found["start_ns"]
    return found


def computing(folder: Path) -> Computing:
    """Device 0 computes from 100 to 200 and 300 to 400, device 1 from 0 to 50, the host from 500 to 600."""
    trace = Planted()
    trace.op("aten::mm", 500, 100)
    trace.op("c10d::allreduce_", 600, 300)
    for start, duration, device in ((100, 100, 0), (300, 100, 0), (0, 50, 1)):
        trace.kernel("sgemm", start, duration, device=device, stream=7)
    trace.kernel("ncclDevKernel_AllReduce", 0, 1_000, device=0, stream=9)
    view = TraceView(trace.read(folder))
    return Computing(view, np.array([name.startswith("nccl") for name in view.trace.names(view.work.row)]))


def test_each_collective_is_exposed_where_its_own_device_computes_nothing(tmp_path: Path) -> None:
    rows = table(
        ("device", 0, 150, 350), ("device", 1, 150, 350), ("device", 0, 0, 1_000), ("host", -1, 450, 650), ("launch", -1, 0, 9)
    )
    assert computing(tmp_path).exposed_each(rows).tolist() == [100, 200, 800, 100, 0]


def test_moments_in_which_several_collectives_run_count_once(tmp_path: Path) -> None:
    rows = table(("device", 0, 150, 350), ("device", 0, 180, 320), ("device", 1, 150, 350), ("launch", -1, 0, 10_000))
    assert [one.total for one in computing(tmp_path).exposed(rows)] == [100, 200]
    assert computing(tmp_path).exposed(rows[:0]) == []
