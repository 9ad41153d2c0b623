"""How busy the devices were stands in every report, and a busy device is called so; a device that cannot be seen is not."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from planting import Planted
from recorded import recorded
from tachoscope_analyzers.trace.findings.report import report
from tachoscope_analyzers.trace.ranks.executor import InProcess
from tachoscope_analyzers.trace.ranks.job import read_job
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
from tachoscope_core.report.report import Report
from tachoscope_show.report.text import render

MS = 1_000_000
VERDICT = "no bottleneck above"


def judged(path: Path) -> tuple[Report, str]:
    found = report(read_job([path], executor=InProcess(), wanted=SummaryOptions(what_if=False)), "planted")
    told = StringIO()
    render(found, Console(file=told, width=200))
    return found, told.getvalue()


def busy_for(part_ns: int, *, missing: bool = False) -> Planted:
    """Eight steps of 10 ms, each with one kernel; the device is idle for the rest."""
    job = Planted()
    for number in range(8):
        begin = 1_000 * MS + number * 10 * MS
        job.step(number, begin, 10 * MS)
        job.op("aten::mm", begin, 9 * MS)
        if missing:
            job.call("cudaLaunchKernel", begin + 1_000, 5_000)
        else:
            job.kernel("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", begin + 10_000, part_ns, launched=begin + 1_000)
    return job


def test_a_busy_device_is_called_compute_bound_with_its_idle_share(tmp_path: Path) -> None:
    found, told = judged(busy_for(9_500_000).write(tmp_path / "busy.json"))

    assert [row.class_ for row in found.findings] == ["compute_bound"]
    idle = next(row.value for row in found.findings[0].evidence if row.signal == "device idle")
    assert idle == pytest.approx(7 * 0.5 / (7 * 10 + 9.5))
    assert "idle 4.40 %" in told
    assert VERDICT in told


def test_a_device_that_is_idle_for_a_seventh_is_not(tmp_path: Path) -> None:
    found, told = judged(busy_for(8_500_000).write(tmp_path / "idle.json"))

    assert "compute_bound" not in {row.class_ for row in found.findings}
    assert "idle 13.38 %" in told


def test_launches_without_a_kernel_give_neither_goodput_nor_a_verdict(tmp_path: Path) -> None:
    found, told = judged(busy_for(0, missing=True).write(tmp_path / "lost.json"))

    assert found.goodput is None
    assert [row.class_ for row in found.findings] == ["unknown"]
    assert "compute share not known" in told
    assert VERDICT not in told


def test_a_trace_of_something_else_is_not_called_free_of_bottlenecks(tmp_path: Path) -> None:
    job = Planted()
    for number in range(50):
        job.add("toplevel", "RunTask", 1_000 * MS + number * 2 * MS, 100_000)

    found, told = judged(job.write(tmp_path / "browser.json"))

    assert found.quality[0].severity == "bad"
    assert VERDICT not in told


def test_the_gpu_bound_sample_is_compute_bound_and_idle_for_3_66_percent() -> None:
    found, told = judged(recorded("hta/diff_test_v100"))

    assert [(row.class_, row.small) for row in found.findings] == [("compute_bound", False), ("comm_exposed", True)]
    assert "busy 96.34 %, idle 3.66 %" in told
