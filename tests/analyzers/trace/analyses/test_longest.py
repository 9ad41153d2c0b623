from pathlib import Path

from planting import Planted
from tachoscope_analyzers.trace.analyses.longest_kernels import longest
from tachoscope_analyzers.trace.events.view import TraceView


def test_names_stand_in_the_order_of_their_device_time(tmp_path: Path) -> None:
    trace = Planted()
    trace.step(1, 0, 1_000_000)
    for place, (operator, kernel, duration) in enumerate(
        [("aten::mm", "gemm", 50_000), ("aten::add", "add", 80_000), ("aten::mm", "gemm", 60_000)]
    ):
        start = 100_000 * place
        trace.op(operator, start, 50_000)
        trace.kernel(kernel, start + 10_000, duration, launched=start + 1_000)
    view = TraceView(trace.read(tmp_path))

    assert longest(view, "kernel") == ["gemm", "add"]
    assert longest(view, "operator") == ["aten::mm", "aten::add"]
    assert longest(view, "kernel", most=1) == ["gemm"]


def test_a_trace_without_device_work_has_no_names(tmp_path: Path) -> None:
    trace = Planted()
    trace.op("aten::mm", 0, 50_000)

    assert longest(TraceView(trace.read(tmp_path)), "kernel") == []
    assert longest(TraceView(trace.read(tmp_path)), "operator") == []
