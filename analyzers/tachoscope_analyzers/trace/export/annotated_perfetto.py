"""A trace written back for ui.perfetto.dev with its ledger, the findings of its report, and its critical path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tachoscope_analyzers.trace.device_time.idle import CAUSES, device_window, pieces_of
from tachoscope_analyzers.trace.device_time.ledger import device_states, host_states
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.export.perfetto import Slice, write
from tachoscope_analyzers.trace.graph.critical_path import critical_path
from tachoscope_analyzers.trace.losses.by_rank import CLASS_OF_CAUSE
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_core.report.report import Report, speedup_text


def write_annotated(path: Path, out: Path, report: Report) -> None:
    """Write a trace with the tracks ledger, findings and critical path.

    Raises:
        TachoscopeError: the trace cannot be read, or the file cannot be written.
    """
    view = TraceView(read(path))
    write(view.trace, out, ledger=_ledger(view), findings=_findings(view, report), path=critical_path(view))


def _ledger(view: TraceView) -> Iterator[Slice]:
    lanes = {_lane(device): device_states(view, device) for device in view.devices} or {"host": host_states(view)}
    for lane, states in lanes.items():
        for state, time in states.items():
            for start, end in zip(time.starts.tolist(), time.ends.tolist(), strict=True):
                yield Slice(start, end, state, lane=lane)


def _lane(device: int) -> str:
    """Return the title of a device's lane; some writers give no number, which is -1."""
    return f"device {device}" if device >= 0 else "device"


def _findings(view: TraceView, report: Report) -> Iterator[Slice]:
    """Yield a slice over the steps for each finding, and one for each of its idle gaps."""
    steps = view.device_steps
    if not len(steps):
        return
    for finding in report.findings:
        args = {"share": f"{finding.share:.1%}", "if fixed": speedup_text(finding), "do": finding.action}
        yield Slice(int(steps.start[0]), int(steps.end[-1]), finding.class_, args, lane=finding.class_)
        for device in view.devices:
            pieces = pieces_of(view, device, *device_window(view, device))
            for position, start, end in zip(pieces.cause.tolist(), pieces.start.tolist(), pieces.end.tolist(), strict=True):
                if CLASS_OF_CAUSE.get(CAUSES[position]) == finding.class_:
                    yield Slice(start, end, f"{finding.class_}: idle", lane=f"{finding.class_} gaps")
