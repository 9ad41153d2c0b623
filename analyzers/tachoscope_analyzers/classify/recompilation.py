"""Code that torch.compile compiles again since its inputs change: what it costs, which guard failed, and limits that were hit.

A first compilation is expected and no finding. How long the ranks compile is measured in their steps; the records of compilations
divide that into first ones and others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tachoscope_analyzers.advice.recompilation import VaryingSize, advice, varying_sizes
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import Ranks, culprits
from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import SEEN_AT, Candidate
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.records.records import COMPILATIONS, DYNAMO_RESET, CompilationDone
from tachoscope_core.report.report import Evidence

_SOURCE = "compilation records"
_MOST_BREAKS = 3


@dataclass(frozen=True, slots=True)
class RecompilationVerdict:
    """Candidates, none or one; `measured`: whether it is known of all ranks what they compiled."""

    candidates: list[Candidate]
    measured: bool = True


def classify(job: JobRecords, steps: Steps, losses: Losses) -> RecompilationVerdict:
    """Return what the step loses to compiling code again; a limit that was hit counts whatever it cost until then."""
    rows = [row for row in job.compilations if row.attempt == steps.attempt and row.writer in steps.writers]
    counts = [_last_count(beats) for beats in job.beats_of(steps.writers)]
    written = Counter(row.writer for row in rows)
    unwritten = [max((count or 0) - written[writer], 0) for writer, count in zip(steps.writers, counts, strict=True)]
    again = _again_ratio(rows, steps, unwritten)
    compiling = losses.common["compile"] + losses.excess["compile"].sum(axis=1)
    of_ranks = np.divide(
        (steps.own["compile"] * again).sum(axis=1),
        steps.own["compile"].sum(axis=1),
        out=np.zeros(len(steps.numbers)),
        where=steps.own["compile"].sum(axis=1) > 0,
    )
    lost = compiling * of_ranks
    limits = [row for row in rows if row.limit]
    known = None not in counts
    if not lost.any() and not limits:
        return RecompilationVerdict([], measured=known)
    found = _candidate(rows, lost, steps, again, losses.mean_step)
    if any(unwritten):
        what = "compilations without a record, taken to be like the others"
        found = replace(found, evidence=[*found.evidence, measured(what, sum(unwritten), "compilations", "heartbeats")])
    return RecompilationVerdict([found], measured=known)


def _last_count(beats: Heartbeats) -> int | None:
    """Return how many compilations a process counted; None: it does not know, or no longer does."""
    return int(beats.signal(COMPILATIONS)[-1]) if beats.has(COMPILATIONS)[-1:].any() else None


def _again_ratio(rows: Sequence[CompilationDone], steps: Steps, unwritten: Sequence[int]) -> Matrix:
    """Return which part of the compiling in each step was of code that had been compiled before, shape (K, R).

    Steps without a record are taken to be like those with one, where a process has compilations that it did not write.
    """
    again, every = np.zeros_like(steps.wall), np.zeros_like(steps.wall)
    columns = {writer: column for column, writer in enumerate(steps.writers)}
    for row in rows:
        column, end = columns[row.writer], row.monotonic_ns / 1e9
        step = int(np.searchsorted(steps.ends[:, column], end))
        if step < len(steps.numbers) and end >= steps.begins[step, column]:
            every[step, column] += row.seconds
            again[step, column] += row.seconds * row.recompiled
    ratio = np.divide(again, every, out=np.zeros_like(every), where=every > 0)
    for column in np.flatnonzero(unwritten).tolist():
        if every[:, column].any():
            ratio[every[:, column] == 0, column] = again[:, column].sum() / every[:, column].sum()
    return ratio


@dataclass(frozen=True, slots=True)
class _Code:
    """What one rank compiled of the code that it compiled longest again."""

    place: str
    times: int
    seconds: float
    guard: str
    varying: VaryingSize | None


def _candidate(rows: Sequence[CompilationDone], lost: Matrix, steps: Steps, again: Matrix, step_seconds: float) -> Candidate:
    limits = [row for row in rows if row.limit]
    limited = Counter((row.place, row.limit) for row in limits)
    rank = _most_of_one_rank(rows)
    own = [row for row in rows if row.rank == rank]
    code = _worst(own)
    limit = next((row.limit for row in limits if row.place == code.place), limits[0].limit if limits else "")
    small = lost.mean() < threshold("warning_share") * step_seconds
    who: Ranks = culprits(steps.own["compile"] * again, steps.ranks).ranks if lost.any() else _ranks_of(limits, steps)
    return Candidate(
        "recompilation",
        lost,
        who,
        [*_evidence(own, code, rank), *_limits(limited), *_graph_breaks(own)],
        action=advice(code.varying, limit, forgotten=code.guard == DYNAMO_RESET),
        level="warning" if limits and small else None,
        cause="limit" if limits else "",
    )


def _most_of_one_rank(rows: Sequence[CompilationDone]) -> int:
    """Return the rank that compiled longest again, or hit a limit."""
    seconds: dict[int, tuple[bool, float]] = defaultdict(lambda: (False, 0.0))
    for row in rows:
        hit, spent = seconds[row.rank]
        seconds[row.rank] = hit or bool(row.limit), spent + row.seconds * row.recompiled
    return max(sorted(seconds), key=lambda rank: seconds[rank][::-1])


def _worst(rows: Sequence[CompilationDone]) -> _Code:
    spent: dict[str, float] = defaultdict(float)
    for row in rows:
        spent[row.place] += row.seconds * row.recompiled + 1e-9 * bool(row.limit)
    place = max(spent, key=spent.__getitem__, default="")
    of_code = [row for row in rows if row.place == place and row.recompiled]
    reasons = [row.reason for row in of_code if row.reason]
    times = sum(not (row.backward or row.limit) for row in of_code)
    guards = Counter(_without_id(reason) for reason in reasons)
    guard = guards.most_common(1)[0][0] if guards else ""
    varying = next(iter(varying_sizes(reasons)), None)
    return _Code(place, times, sum(row.seconds for row in of_code), guard, varying)


def _without_id(reason: str) -> str:
    """Return a reason without torch's id of the compilation that it does not match: `0/0: `."""
    head, colon, rest = reason.partition(": ")
    return rest if colon and "/" in head and " " not in head else reason


def _evidence(own: Sequence[CompilationDone], code: _Code, rank: int) -> list[Evidence]:
    source = f"{_SOURCE} of rank {rank}, its whole attempt"
    again = sum(row.seconds for row in own if row.recompiled)
    first = sum(row.seconds for row in own if not row.recompiled)
    times = sum(row.recompiled and not (row.backward or row.limit) for row in own)
    place = measured(f"{SEEN_AT}{code.place}", code.seconds / again if again else 1.0, "ratio", f"{source}: of compiling again")
    rows = [
        *([place] if code.place else []),
        measured("compilations of code that was compiled before", times, "compilations", source),
        measured("they took", again, "seconds", source),
        measured("first compilations, which are expected, took", first, "seconds", source),
    ]
    if code.varying is not None:
        varying = code.varying
        seen = ", ".join(map(str, varying.sizes[:5])) + (f", ... {varying.sizes[-1]}" if len(varying.sizes) > 5 else "")
        what = f"guard that failed: size of {varying.tensor} at dimension {varying.dimension}; sizes seen: {seen}"
        rows.append(measured(what, len(varying.sizes), "sizes", source))
    elif code.guard == DYNAMO_RESET:
        rows.append(measured(f"{DYNAMO_RESET} made torch forget what it had compiled", code.times, "compilations", source))
    elif code.guard:
        rows.append(measured(f"guard that failed: {code.guard}", code.times, "compilations", source))
    elif times:
        rows.append(measured("guard that failed: this version of torch does not tell", code.times, "compilations", source))
    return rows


def _limits(limited: Counter[tuple[str, str]]) -> list[Evidence]:
    return [
        measured(f"{limit} was hit by {place or 'code'}, which runs uncompiled for other inputs since", ranks, "times", _SOURCE)
        for (place, limit), ranks in limited.most_common(_MOST_BREAKS)
    ]


def _graph_breaks(own: Sequence[CompilationDone]) -> list[Evidence]:
    """Return where the code could not be compiled in one piece: more pieces are compiled more often."""
    breaks = {place: reason for row in own for place, reason in row.graph_breaks.items()}
    if not breaks:
        return []
    first = "; ".join(f"{place} ({reason})" for place, reason in list(breaks.items())[:_MOST_BREAKS])
    return [measured(f"lines with a graph break: {first}", len(breaks), "lines", _SOURCE)]


def _ranks_of(rows: Sequence[CompilationDone], steps: Steps) -> Ranks:
    ranks = sorted({row.rank for row in rows})
    return ranks if len(ranks) * 2 <= len(steps.ranks) else "all"
