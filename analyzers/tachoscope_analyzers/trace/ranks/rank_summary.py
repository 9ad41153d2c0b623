"""What one rank's trace leaves behind: small tables, whatever the size of the trace."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from tachoscope_analyzers.trace.analyses.collectives import Collectives, collectives
from tachoscope_analyzers.trace.analyses.operator_profile import TraceProfile, profile
from tachoscope_analyzers.trace.events.intervals import EMPTY, Intervals, longest, union
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.losses.judged_rank import RankJudgement, judge_rank
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_analyzers.trace.reading.trace import ReadQuality
from tachoscope_analyzers.trace.reading.trace_files import stem

MOST_STEPS = 4_096
MOST_GROUPS = 256
_LONGEST_LABEL = 200
LABELS = ["group", "group_description", "group_ranks", "kind"]


@dataclass(frozen=True, slots=True)
class SummaryOptions:
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


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One rank, small enough to be sent between machines and kept for thousands of ranks.

    Attributes:
        rank: as the trace says, else None. start_ns, end_ns: of its events, on its own clock, Unix time where the trace tells it.
        step_source: how its steps were found; steps: step, start_ns, end_ns (Unix time as above), at most `MOST_STEPS`.
        arrivals: the collectives in order of start, at most as many as were asked for: group, group_description, group_ranks, kind
            (categories), channel (-1 for named groups, else the order of the stream), sequence, step, start_ns, duration_ns, bytes,
            exposed_ns. collectives: how many there are in all.
        judgement: its losses and the quality of its data, where they were wanted. sums: to compare it by, where they were wanted.
        by_group: as in `Collectives`, at most `MOST_GROUPS` rows. exposed_ns: of all collectives. exposed: when that was (Unix time
            as above), the longest stretches, at most as many as collectives were asked for.
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
    steps: pd.DataFrame
    arrivals: pd.DataFrame
    collectives: int
    by_group: pd.DataFrame
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
    return replace(
        found,
        judgement=judge_rank(view, what_if=wanted.what_if) if wanted.judged else None,
        sums=profile(view) if wanted.profile else None,
    )


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
        collectives=int((found.each["side"] != "launch").sum()),
        by_group=found.by_group.head(MOST_GROUPS).copy(),
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


def _steps(view: TraceView, base: int) -> pd.DataFrame:
    steps = view.steps
    columns = {"step": steps.number, "start_ns": steps.start + base, "end_ns": steps.end + base}
    return pd.DataFrame({name: np.array(values[:MOST_STEPS], dtype=np.int64) for name, values in columns.items()})


def _arrivals(found: Collectives, base: int, most: int) -> pd.DataFrame:
    """Return the first collectives, the same on all ranks, so that they can be matched."""
    each = found.each[found.each["side"] != "launch"]
    named = (each["group"] != "").to_numpy()
    streams, place = np.unique(np.where(named, -1, each["stream"]), return_inverse=True)
    channel = np.where(named, -1, place.reshape(-1) - (1 if len(streams) and streams[0] == -1 and named.any() else 0))
    table = pd.DataFrame(
        {
            "group": each["group"].map(_label),
            "group_description": each["group_description"].map(_label),
            "group_ranks": each["group_ranks"].map(_label),
            "kind": each["kind"],
            "channel": channel.astype(np.int32),
            "group_size": each["group_size"].astype(np.int32),
            "sequence": each["sequence"],
            "step": each["step"],
            "start_ns": each["start_ns"] + base,
            "duration_ns": each["duration_ns"],
            "bytes": each["bytes"],
            "exposed_ns": each["exposed_ns"],
        }
    ).head(most)
    for column in LABELS:
        table[column] = table[column].astype(str).astype("category")
    return table.reset_index(drop=True)


def _label(text: str) -> str:
    """Return a text, shortened with a hash if it is long (a large group's ranks)."""
    if len(text) <= _LONGEST_LABEL:
        return text
    return f"{text[: _LONGEST_LABEL - 20]}… {hashlib.sha256(text.encode()).hexdigest()[:16]}"
