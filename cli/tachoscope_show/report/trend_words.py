"""The course of a run in sentences: lasting changes of the step time, and ranks that came late."""

from __future__ import annotations

from datetime import UTC, datetime

from tachoscope_core.report.report import Report
from tachoscope_core.report.trend import ChangePoint, LateRank, Stretch
from tachoscope_show.text.units import percent, seconds

_SHOWN = 4
_THROUGHOUT = 0.95


def change(one: ChangePoint) -> str:
    """Return from when to when a step takes how long instead, and what grew on which ranks."""
    states = ", ".join(f"{row.state} {seconds(row.before_seconds)} → {seconds(row.after_seconds)}" for row in one.states)
    return (
        f"from step {one.step:,} ({at(one.time)}) a step takes {seconds(one.after_seconds)} instead of "
        f"{seconds(one.before_seconds)} ({signed_percent(one.share)}): {states or 'no state alone'}; {ranks_text(one.ranks)}"
    )


def describe_late(one: LateRank, report: Report) -> str:
    """Return in how many steps a rank was late, from which to which, and by how much."""
    parts = [_stretch(row) for row in one.stretches[:_SHOWN]]
    if len(one.stretches) > _SHOWN:
        parts.append(f"and {len(one.stretches) - _SHOWN} more")
    return f"rank {one.rank} was late in {one.steps:,} of {report.window.steps:,} steps: {'; '.join(parts)}"


def _stretch(one: Stretch) -> str:
    return f"{one.first_step:,} to {one.last_step:,} by {seconds(one.seconds_per_step)} a step ({one.state})"


def lines(report: Report) -> list[str]:
    """Return the sentences; a rank that was late throughout has its finding, and is left out if that names it."""
    if report.course is None:
        return []
    named = {rank for finding in report.findings for rank in finding.ranks if not isinstance(finding.ranks, str)}
    ranks = [one for one in report.course.late or [] if one.share < _THROUGHOUT or one.rank not in named]
    return [*map(change, report.course.changes or []), *(describe_late(one, report) for one in ranks)]


def ranks_text(ranks: list[int] | str) -> str:
    """Return the ranks in words."""
    if isinstance(ranks, str):
        return "all ranks"
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def at(unix: float) -> str:
    """Return a time of day, UTC."""
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def signed_percent(ratio: float) -> str:
    """Return a ratio as a percentage with its sign."""
    return ("+" if ratio > 0 else "") + percent(ratio)
