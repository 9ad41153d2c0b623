from pathlib import Path

from planting import Planted
from tachoscope_analyzers.trace.compare.report_changes import compared
from tachoscope_analyzers.trace.findings.report import report
from tachoscope_analyzers.trace.ranks.executor import InProcess
from tachoscope_analyzers.trace.ranks.job import JobTraces, read_job
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
from tachoscope_core.report.report import Report

MS = 1_000_000
Kernels = list[tuple[str, str, int]]
"""Kernels of a step: name, operator, duration in ns."""


def job(folder: Path, kernels: Kernels, device: str = "A100") -> JobTraces:
    folder.mkdir()
    trace = Planted(extra={"deviceProperties": [{"id": 0, "name": device, "totalGlobalMem": 1 << 34}]})
    for step in range(3):
        begin = 10 * MS * step
        trace.step(step, begin, 10 * MS)
        for place, (kernel, operator, duration) in enumerate(kernels):
            start = begin + 2 * MS * place
            trace.op(operator, start, 90_000)
            trace.kernel(kernel, start + 10_000, duration, launched=start + 1_000)
    return read_job([trace.write(folder / "t.json")], executor=InProcess(), wanted=SummaryOptions(what_if=False, profile=True))


def against(before: JobTraces, after: JobTraces) -> tuple[Report, list[str]]:
    found = compared(report(after, "after"), after, report(before, "before"), before)
    return found, [note.means for note in found.quality if note.what == "comparison"]


GEMMS: Kernels = [("gemm", "aten::mm", MS), ("softmax", "aten::softmax", MS)]


def test_nothing_is_said_of_two_recordings_of_the_same_work(tmp_path: Path) -> None:
    found, notes = against(job(tmp_path / "one", GEMMS), job(tmp_path / "two", GEMMS))

    assert notes == []
    assert not any(change.seconds != change.baseline_seconds for change in found.changes)


def test_other_devices_are_named_first(tmp_path: Path) -> None:
    found, notes = against(job(tmp_path / "one", GEMMS), job(tmp_path / "two", GEMMS, "V100"))

    assert notes == ["on A100 in the baseline, on V100 in the other"]
    assert found.quality[0].what == "comparison"


def test_traces_that_share_little_are_asked_about(tmp_path: Path) -> None:
    other = [("gemm", "aten::mm", MS), ("lookup", "aten::embedding", 3 * MS)]

    _, notes = against(job(tmp_path / "one", GEMMS), job(tmp_path / "two", other))

    assert notes == ["only 25 % of the device time is in kernels that both have: are they of the same model?"]


def test_kernels_that_were_taken_for_one_are_counted(tmp_path: Path) -> None:
    before = [("volta_sgemm_128x64_tn", "aten::mm", MS), ("volta_sgemm_64x64_tn", "aten::mm", MS // 2)]

    found, _ = against(job(tmp_path / "one", before), job(tmp_path / "two", [("ampere_sgemm_32x32_tn", "aten::mm", MS)]))

    (change,) = [one for one in found.changes if one.kind == "kernel"]
    assert (change.baseline_name, change.baseline_names, change.names) == ("volta_sgemm_128x64_tn", 2, 1)
