"""What one rank's trace says of its bottlenecks: losses, the step without them, and what bounds these statements."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.trace.analyses import data_quality
from tachoscope_analyzers.trace.events.steps import named
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph import removals
from tachoscope_analyzers.trace.graph.removals import Selection
from tachoscope_analyzers.trace.graph.replay import Counterfactual, Replay
from tachoscope_analyzers.trace.losses.by_rank import Loss, RankLosses, rank_losses
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_core.report.report import QualityNote

_TAKEN_OUT = {
    "input_preprocess": (removals.DATA_LOADING,),
    "input_workers": (removals.DATA_LOADING,),
    "h2d_copy": (removals.COPIES,),
    "launch_bound": (removals.HOST_LAUNCH,),
    "host_sync": (removals.SYNCHRONISATION,),
    "host_pause": (removals.HOST_PAUSE, removals.GARBAGE_COLLECTION),
    "memory_thrash": (removals.ALLOCATOR,),
    "comm_exposed": (removals.COMMUNICATION, removals.HOST_COMMUNICATION),
    "checkpoint_stall": (removals.CHECKPOINT,),
}
"""What the replay leaves out to answer for a class."""
_SEVERITY: dict[str, Literal["bad", "limited", "note"]] = {"critical": "bad", "warning": "limited", "info": "note"}
_ENGINE_STEP = re.compile(r"(?i)(execute_(context|new|model)|step\[|.*decode)")
_PREFILL = re.compile(r"(?i)(prefill|extend|execute_new|context_[1-9])")


class RankJudgement(msgspec.Struct, frozen=True):
    """One rank's losses.

    Attributes:
        what_if: by class, the replayed step without it; only for losses above the warning threshold.
        quality: what can and cannot be concluded from this trace. decoding: whether a serving engine's annotations say so.
    """

    losses: RankLosses
    what_if: dict[str, Counterfactual]
    quality: tuple[QualityNote, ...]
    decoding: bool


def judge_rank(view: TraceView, *, what_if: bool) -> RankJudgement:
    """Return the losses of a rank, replayed where they are large."""
    found = rank_losses(view)
    return RankJudgement(found, _replayed(view, found) if what_if else {}, _notes(view), _decodes(view))


def _replayed(view: TraceView, found: RankLosses) -> dict[str, Counterfactual]:
    step = found.steps["duration_ns"].mean() / 1e9 if len(found.steps) else 0.0
    large = [loss for loss in found.losses if loss.slug in _TAKEN_OUT and _share(loss, step) >= threshold("warning_share")]
    if not len(view.host.of_cause(removals.DATA_LOADING).row):  # then no event stands for the wait that the replay could leave out
        large = [loss for loss in large if removals.DATA_LOADING not in _TAKEN_OUT[loss.slug]]
    if not large:
        return {}
    prepared = Replay(view)
    return {loss.slug: prepared.without(*map(Selection, _TAKEN_OUT[loss.slug])) for loss in large}


def _notes(view: TraceView) -> tuple[QualityNote, ...]:
    return tuple(
        QualityNote(
            what=_what(note.what.replace("_", " "), note.value, note.unit), severity=_SEVERITY[note.severity], means=note.meaning
        )
        for note in data_quality.notes(view)
    )


def _what(name: str, value: float, unit: str) -> str:
    if not value:
        return name
    if unit == "percent":
        return f"{name}: {'less than 0.1' if value < 0.1 else format(value, '.1f')} %"
    return f"{name}: {value:g} {unit[:-1] if value == 1 and unit.endswith('s') else unit}"


def _decodes(view: TraceView) -> bool:
    """Return whether a serving engine's annotations are decoding, without prefill."""
    spans = named(view.trace, _ENGINE_STEP, (Kind.ANNOTATION, Kind.DEVICE_ANNOTATION))
    names = set(view.trace.names(spans).tolist())
    return bool(names) and not any(_PREFILL.search(name) for name in names)


def _share(loss: Loss, step_seconds: float) -> float:
    return float(loss.seconds.mean()) / step_seconds if step_seconds else 0.0
