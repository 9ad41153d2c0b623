"""What a trace can be trusted with: the verdict that stands before every other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tachoscope_analyzers.stats.ratio import percent
from tachoscope_analyzers.trace.events.intervals import covered, union
from tachoscope_analyzers.trace.events.launch_names import is_graph_launch
from tachoscope_analyzers.trace.events.merged_files import launching_processes
from tachoscope_analyzers.trace.events.missing_device_work import (
    device_work_is_lost,
    have_work,
    holds_no_known_work,
    kernel_launches,
    runtime_calls,
    without_kernel,
)
from tachoscope_analyzers.trace.events.steps import window
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_core.report.report import SEVERITY_ORDER, Severity

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["what", "value", "unit", "severity", "meaning"]

_LEAST_STEPS = 2
_FEW_STEPS_RATIO = 0.5
_LOST_PERCENT = 1.0
_UNLINKED_PERCENT = 5.0
_DISORDER_PERCENT = 0.1
_OVERHEAD_PERCENT = 5.0
_HARMLESS = ("events", "flows_and_others_skipped", "chunks_read_event_by_event")
_COUNTS = {
    "negative_durations": "events ended before they began; they count as empty",
    "begins_without_end": "events began and never ended; they are left out",
    "ends_without_begin": "events ended and never began; they are left out",
    "mended_events": "events held what JSON does not allow and were fixed",
    "events_without_time": "events without a time are left out",
    "names_beyond_the_limit": "events have a name too many to keep and share one name",
    "tracks_beyond_the_limit": "events are on a thread too many to keep and share one thread",
}


class Note(msgspec.Struct, frozen=True):
    """One fact about the data: what, how much, how bad, and what can and cannot be concluded."""

    what: str
    value: float
    unit: str
    severity: Severity
    meaning: str


def quality(view: TraceView) -> pd.DataFrame:
    """Return what is wrong with a trace, see `notes`.

    Columns: what, value, unit, severity (critical: figures of the whole are not to be trusted; warning: some figures are not;
    info), meaning (what can and cannot be concluded).
    """
    import pandas as pd  # a third of a second, which a report does not need

    return pd.DataFrame([[getattr(note, column) for column in COLUMNS] for note in notes(view)], columns=COLUMNS)


def notes(view: TraceView) -> list[Note]:
    """Return what is wrong with a trace, the gravest first; empty for one without fault."""
    found = [*_file(view), *_merged(view), *_steps(view), *_links(view), *_clocks(view), *_overflow(view), *_overhead(view)]
    return sorted(found, key=lambda note: SEVERITY_ORDER[note.severity])


def _file(view: TraceView) -> Iterator[Note]:
    trace = view.trace
    found = trace.meta.quality
    if found.cut:
        meaning = (
            "the file ends early, and these bytes of an event that is not whole were left out; how much is missing behind them is "
            "not known: what stands before the cut is exact, the last step may lack events, later ones are missing"
        )
        yield Note("cut_file", found.cut_bytes, "bytes", "warning", meaning)
    for name, count in found.counts.items():
        if count and name not in _HARMLESS:
            share = percent(count, max(len(trace.events), 1))
            severity: Severity = "warning" if share >= _LOST_PERCENT else "info"
            yield Note(name, count, "events", severity, _COUNTS.get(name, "events are malformed"))
    if not len(trace.events):
        yield Note("no_events", 0, "events", "critical", "the trace contains no event: nothing can be concluded")
        return
    lost = int(trace.lost.sum())
    if lost:
        meaning = "events lost their time (0) and are left out: busy time, counts and sums lack what they stood for"
        yield Note("events_at_zero", lost, "events", "warning", meaning)
    yield from _devices(view)


def _devices(view: TraceView) -> Iterator[Note]:
    launches, lost = len(kernel_launches(view)), len(without_kernel(view))
    cut = view.trace.meta.quality.cut
    not_to_be_had = "how busy the device was is unknown; compute share, ledger and verdicts of the device are not available"
    if cut and device_work_is_lost(view):
        seen = f"{launches - lost} of {launches} launched kernels are there" if launches else "none of the device's work is there"
        meaning = f"the device's events come last in the file, so the cut took them ({seen}): {not_to_be_had}"
        yield Note("device_work_cut_away", lost, "launches", "critical", meaning)
    elif device_work_is_lost(view):
        meaning = f"the host launched kernels of which the trace holds none: {not_to_be_had}"
        yield Note("no_device_events", 0, "events", "critical", meaning)
    elif holds_no_known_work(view):
        meaning = "no operator, runtime call or device work that is known: this is not a trace of training that could be judged"
        yield Note("nothing_known", len(view.trace.events), "events", "critical", meaning)
    elif not len(view.work):
        meaning = "the trace contains no device work: the ledger is that of the host's main thread, and a device was not measured"
        meaning += "; had the job one, its events would have stood behind the cut" if cut else ""
        yield Note("no_device_events", 0, "events", "warning" if cut else "info", meaning)


def _steps(view: TraceView) -> Iterator[Note]:
    steps = view.steps
    if not len(steps):
        return
    if steps.source == "window":
        meaning = "no step was found: the whole trace counts as one step, so per-step values and their variation are not available"
        yield Note("no_steps", 0, "steps", "warning", meaning)
    elif len(steps) < _LEAST_STEPS:
        meaning = "one step only: it may not be typical, and the start of the profiler weighs on it"
        yield Note("window_too_short", len(steps), "steps", "warning", meaning)
    if steps.source not in ("profiler", "window"):
        meaning = f"the profiler marked no steps; they were inferred ({steps.source})"
        yield Note("steps_inferred", len(steps), "steps", "info", meaning)
    jumps = np.diff(steps.number)
    missing = int((jumps[jumps > 1] - 1).sum())
    if missing:
        meaning = "steps between the first and the last are not in the trace: their time is in no figure per step"
        yield Note("missing_steps", missing, "steps", "warning", meaning)
    yield from _steps_without_work(view)


def _steps_without_work(view: TraceView) -> Iterator[Note]:
    work, steps = view.work, view.device_steps
    if not len(work):
        return
    idle = covered(union(work.start, work.end), steps.start, steps.end) == 0
    if idle.any():
        severity: Severity = "critical" if idle.mean() > 1 - _FEW_STEPS_RATIO else "info"
        meaning = (
            f"only {int((~idle).sum())} of {len(steps)} steps have device work: whether the device idled in the others is not known"
        )
        yield Note("steps_without_device_work", int(idle.sum()), "steps", severity, meaning)
    first, last = window(view.trace, work)
    seen = percent(min(last, int(steps.end[-1])) - max(first, int(steps.start[0])), int(steps.end[-1] - steps.start[0]))
    if seen < 100 * _FEW_STEPS_RATIO:
        meaning = "the device's events cover only a part of the steps: the idle share of that part does not describe the rest"
        yield Note("device_seen_for_a_part", seen, "percent", "critical", meaning)


def _links(view: TraceView) -> Iterator[Note]:
    work = view.work
    unlinked = int((work.launch < 0).sum())
    if unlinked:
        share = percent(unlinked, len(work))
        severity: Severity = "warning" if share >= _UNLINKED_PERCENT else "info"
        meaning = (
            f"{share:.1f} % of the device's work has no launch: it counts all the same, but idle time before it has no known cause"
        )
        yield Note("work_without_launch", unlinked, "events", severity, meaning)
    lost = len(without_kernel(view))
    if lost and len(work):
        share = percent(lost, len(kernel_launches(view)))
        meaning = f"{share:.1f} % of the launches have no kernel: the device's busy time is too low by what those took"
        yield Note("launches_without_kernel", lost, "calls", "warning" if share >= _LOST_PERCENT else "info", meaning)
    yield from _graphs(view)
    before = int((work.end <= view.steps.start[0]).sum()) if len(view.steps) else 0
    after = int((work.start >= view.steps.end[-1]).sum()) if len(view.steps) else 0
    if before + after:
        meaning = "device work before the first or after the last step is in the whole window's figures and in no step"
        yield Note("work_outside_steps", before + after, "events", "info", meaning)


def _graphs(view: TraceView) -> Iterator[Note]:
    """Yield notes on CUDA graphs: profilers may record only some replays; a graph without any work may be empty."""
    trace, calls = view.trace, runtime_calls(view)
    graphs = calls[is_graph_launch(trace, calls)]
    recorded = have_work(view, graphs)
    if recorded.any() and not recorded.all():
        lost = int((~recorded).sum())
        share = percent(lost, len(graphs))
        meaning = f"{share:.1f} % of the graph launches have no device work: the device's busy time is too low by what those took"
        yield Note("graph_launches_without_work", lost, "calls", "warning" if share >= _LOST_PERCENT else "info", meaning)


def _merged(view: TraceView) -> Iterator[Note]:
    several = launching_processes(view.trace, view.work.launch)
    if several > 1:
        meaning = (
            f"the file holds {several} processes that launch work: devices are separated, but steps are those of one process and "
            "idle time is attributed to any of them; give one file for each rank"
        )
        yield Note("several_processes", several, "processes", "warning", meaning)


def _clocks(view: TraceView) -> Iterator[Note]:
    trace, work = view.trace, view.work
    linked = work.launch >= 0
    ahead = trace.start[work.launch[linked]] - work.start[linked]
    wrong = ahead[ahead > 0]
    if not len(wrong):
        return
    share = percent(len(wrong), len(ahead))
    meaning = (
        f"{share:.2f} % of the device's work begins before the call that launched it, by up to {int(wrong.max()) / 1000:.1f} us: "
        "host and device clocks disagree, so launch delays below that and causes of idle time are unreliable"
    )
    yield Note("clock_disorder", len(wrong), "events", "warning" if share >= _DISORDER_PERCENT else "info", meaning)


def _overflow(view: TraceView) -> Iterator[Note]:
    trace, work = view.trace, view.work
    if len(work) < 2:
        return
    cut = int((trace.end[work.row] - work.end).sum())
    if cut:
        events = int((trace.end[work.row] > work.end).sum())
        meaning = f"{events} device events outlast the next one on their stream; they were cut to its start"
        yield Note("overflowing_durations", cut, "ns", "warning", meaning)
    same = (work.device[1:] == work.device[:-1]) & (work.stream[1:] == work.stream[:-1]) & (work.stream[1:] >= 0)
    over = np.where(same, work.end[:-1] - work.start[1:], 0)
    count = int((over > 0).sum())
    if count:
        meaning = "device events on one stream overlap: busy time counts each moment once, sums over kernels count it twice"
        yield Note("overlap_on_one_stream", count, "events", "info", meaning)


def _overhead(view: TraceView) -> Iterator[Note]:
    trace = view.trace
    rows = np.flatnonzero(trace.kind == Kind.OVERHEAD)
    if not len(rows) or not len(view.steps):
        return
    spent = union(trace.start[rows], trace.end[rows])
    inside = int(covered(spent, view.steps.start, view.steps.end).sum())
    share = percent(inside, int((view.steps.end - view.steps.start).sum()))
    meaning = f"the profiler's own work took {share:.1f} % of the steps: without it they are shorter"
    if inside:
        yield Note("profiler_overhead", inside, "ns", "warning" if share >= _OVERHEAD_PERCENT else "info", meaning)
