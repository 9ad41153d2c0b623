"""How busy a device was, in a few numbers that a report can show."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.trace.device_time.breakdown import times_of
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_core.report.report import Evidence, QualityNote

_SOURCE = "profiler trace, from the device's first work to its last"


class DeviceUse(msgspec.Struct, frozen=True):
    """Shares (ratios) of the window from a device's first work to its last: idle, communicating, communicating and nothing else."""

    device: int
    idle: float
    communication: float
    exposed_communication: float

    @property
    def busy(self) -> float:
        """Share of the window in which anything ran on the device."""
        return 1.0 - self.idle


def device_use(view: TraceView, device: int) -> DeviceUse:
    """Return which part of its span, 0 to 1, a device was idle and communicated."""
    times = times_of(view, device)
    span = max(int(times["span_ns"][0]), 1)
    return DeviceUse(device, *(float(times[f"{name}_ns"][0]) / span for name in ("idle", "communication", "exposed_communication")))


def use_note(uses: Mapping[int, DeviceUse]) -> list[QualityNote]:
    """Return how busy the devices of a job were, by rank, as a line of the report; none without a device."""
    if not uses:
        return []
    least = min(uses, key=lambda rank: uses[rank].busy)
    most = max(uses, key=lambda rank: uses[rank].busy)
    low, high = uses[least], uses[most]
    if len(uses) == 1:
        what = f"device {low.device}: busy {low.busy:.2%}, idle {low.idle:.2%}"
    else:
        what = f"devices idle: {high.idle:.2%} (rank {most}) to {low.idle:.2%} (rank {least})"
    moved = f"communication {low.communication:.2%}{'' if len(uses) == 1 else f' on rank {least}'}, " if low.communication else ""
    moved += f"of it {low.exposed_communication:.2%} with nothing else running; " if low.communication else ""
    means = (
        f"of the time from first to last work; {moved}every gap is idle here, "
        "while the ledger counts gaps of up to 10 µs between queued kernels as compute"
    )
    return [QualityNote(what=what.replace("%", " %"), severity="note", means=means.replace("%", " %"))]


def use_evidence(uses: Mapping[int, DeviceUse]) -> list[Evidence]:
    """Return the busy and the idle share of the device that was least busy."""
    if not uses:
        return []
    rank = min(uses, key=lambda one: uses[one].busy)
    of = f" (rank {rank}, the least busy)" if len(uses) > 1 else ""
    return [
        measured(f"device busy{of}", uses[rank].busy, "ratio", _SOURCE),
        measured(f"device idle{of}", uses[rank].idle, "ratio", _SOURCE),
    ]
