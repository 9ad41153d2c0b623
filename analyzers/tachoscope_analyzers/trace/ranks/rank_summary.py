"""What one rank's trace leaves behind: small tables, whatever the size of the trace."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.analyses.collectives import Collectives, collectives
from tachoscope_analyzers.trace.events.intervals import EMPTY, Intervals, longest, union
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.losses.judged_rank import RankJudgement, judge_rank
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_analyzers.trace.reading.trace import ReadQuality
from tachoscope_analyzers.trace.reading.trace_files import stem

if TYPE_CHECKING:
    from tachoscope_analyzers.trace.analyses.operator_profile import TraceProfile

Array = npt.NDArray[Any]

MOST_STEPS = 4_096
MOST_GROUPS = 256
_LONGEST_LABEL = 200
STEP = np.dtype([(name, np.int64) for name in ("step", "start_ns", "end_ns")])
_LABELS = ("group", "group_description", "group_ranks", "kind")
_NUMBERS = ("sequence", "step", "start_ns", "duration_ns", "bytes", "exposed_ns")
ARRIVAL = np.dtype(
    [
        *((name, np.object_) for name in _LABELS),
        *((name, np.int32) for name in ("channel", "group_size")),
        *((name, np.int64) for name in _NUMBERS),
    ]
)


class SummaryOptions(msgspec.Struct, frozen=True):
    """What is worked out for a rank beyond its summary.

    Attributes:
        collectives: at most so many are kept. judged: losses and data quality. what_if: replays for the large losses.
        tables: folder into which all its tables are written, None for none; label: of its folder there, if it has no rank.
        profile: the sums by which two jobs are compared.
    """

    collectives: int = 1 << 14
    judged: bool = True
    what_if: bool = True
    tables: Path | None = None
    label: str = ""
    profile: bool = False


class RankSummary(msgspec.Struct, frozen=True):
    """One rank, small enough to be sent between machines and kept for thousands of ranks.

    Attributes:
        rank: as the trace says, else None. start_ns, end_ns: of its events, on its own clock, Unix time where the trace tells it.
        step_source: how its steps were found; steps: of `STEP` (Unix time as above), at most `MOST_STEPS`.
        arrivals: the collectives in order of start, at most as many as were asked for, of `ARRIVAL`; channel is -1 for named
            groups, else the order of the stream. collectives: how many there are in all.
        judgement: its losses and the quality of its data, where they were wanted. sums: to compare it by, where they were wanted.
        by_group: `groups` of `Collectives`, at most `MOST_GROUPS` rows. exposed_ns: of all collectives. exposed: when that
            was (Unix time as above), the longest stretches, at most as many as collectives were asked for.
    """

    path: Path
    rank: int | None
    world_size: int | None
    digest: str
    writer: str
    backend: str
    device_name: str
    events: int
    start_ns: int
    end_ns: int
    quality: ReadQuality
    step_source: str
    steps: Array
    arrivals: Array
    collectives: int
    by_group: Array
    exposed_ns: int
    exposed: Intervals = EMPTY
    judgement: RankJudgement | None = None
    sums: TraceProfile | None = None


def summarise(path: Path, wanted: SummaryOptions) -> RankSummary:
    """Read and analyse one rank's trace; this is what workers run.

    Raises:
        TachoscopeError: the file cannot be read, or is not a trace.
    """
    view = TraceView(read(path))
    found = summary(view, path, wanted.collectives)
    if wanted.tables is not None:
        from tachoscope_analyzers.trace.analyses.all_tables import write_tables  # with all analyses, which few ask for

        write_tables(view, wanted.tables / (f"rank-{found.rank}" if found.rank is not None else wanted.label or stem(path)))
    return msgspec.structs.replace(
        found,
        judgement=judge_rank(view, what_if=wanted.what_if) if wanted.judged else None,
        sums=_profile(view) if wanted.profile else None,
    )


def _profile(view: TraceView) -> TraceProfile:
    from tachoscope_analyzers.trace.analyses.operator_profile import profile  # imports pandas, which no report needs

    return profile(view)


def summary(view: TraceView, path: Path, most_collectives: int) -> RankSummary:
    """Return what is kept of an analysed trace."""
    trace, found = view.trace, collectives(view)
    meta, base = trace.meta, trace.meta.base_nanoseconds
    several = len(trace.events) > 0
    return RankSummary(
        path=path,
        rank=meta.rank,
        world_size=meta.world_size,
        digest=meta.digest,
        writer=meta.writer,
        backend=meta.backend,
        device_name=meta.devices[0].name if meta.devices else "",
        events=len(trace.events),
        start_ns=base + trace.first_ns if several else 0,
        end_ns=base + int(trace.end.max()) if several else 0,
        quality=meta.quality,
        step_source=view.steps.source,
        steps=_steps(view, base),
        arrivals=_arrivals(found, base, most_collectives),
        collectives=int((found.rows["side"] != "launch").sum()),
        by_group=found.groups[:MOST_GROUPS].copy(),
        exposed_ns=found.exposed_ns,
        exposed=_exposed(found, base, most_collectives),
    )


def _exposed(found: Collectives, base: int, most: int) -> Intervals:
    together = union(
        np.concatenate([EMPTY.starts, *(one.starts for one in found.exposed)]),
        np.concatenate([EMPTY.ends, *(one.ends for one in found.exposed)]),
    )
    kept = longest(together, most)
    return Intervals(kept.starts + base, kept.ends + base)


def _steps(view: TraceView, base: int) -> Array:
    steps = view.steps
    kept = np.zeros(min(len(steps), MOST_STEPS), dtype=STEP)
    for name, values in (("step", steps.number), ("start_ns", steps.start + base), ("end_ns", steps.end + base)):
        kept[name] = values[:MOST_STEPS]
    return kept


def _arrivals(found: Collectives, base: int, most: int) -> Array:
    """Return the first collectives, the same on all ranks, so that they can be matched."""
    each = found.rows[found.rows["side"] != "launch"]
    named = each["group"] != ""
    streams, place = np.unique(np.where(named, -1, each["stream"]), return_inverse=True)
    channel = np.where(named, -1, place.reshape(-1) - (1 if len(streams) and streams[0] == -1 and named.any() else 0))
    kept = np.zeros(min(len(each), most), dtype=ARRIVAL)
    each = each[:most]
    for name in _LABELS:
        label = {text: _label(str(text)) for text in set(each[name].tolist())}  # one object for each text, which is pickled once
        kept[name] = [label[text] for text in each[name].tolist()]
    kept["channel"] = channel[:most]
    for name in ("group_size", *_NUMBERS):
        kept[name] = each[name]
    kept["start_ns"] += base
    return kept


def _label(text: str) -> str:
    """Return a text, shortened with a hash if it is long (a large group's ranks)."""
    if len(text) <= _LONGEST_LABEL:
        return text
    return f"{text[: _LONGEST_LABEL - 20]}… {hashlib.sha256(text.encode()).hexdigest()[:16]}"
