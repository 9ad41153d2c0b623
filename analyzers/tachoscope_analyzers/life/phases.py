"""The course of an attempt as a few stretches of time, for its picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tachoscope_analyzers.attempts.endings import AttemptEnding
from tachoscope_analyzers.attempts.hangs import HangThreshold
from tachoscope_analyzers.attempts.maintenance import Interval, merged
from tachoscope_analyzers.attempts.processes import Clock
from tachoscope_analyzers.life.ledger import RunBooks
from tachoscope_core.report.job_life import Attempt, Span

NEW_STEPS = "steps"


def attempt(books: RunBooks, ending: AttemptEnding, normal: HangThreshold, clock: Clock) -> Attempt:
    """Return what an attempt was, with its course."""
    run = books.run
    first = run.pieces[0][1] + 1 if run.own_steps else 0
    return Attempt(
        attempt=run.attempt,
        start=clock.unix(run.start),
        end=clock.unix(run.end),
        ranks=len({process.rank for process in run.processes}),
        hosts=sorted({process.host for process in run.processes}),
        first_step=first,
        last_step=int(run.numbers(np.array([run.own_steps]))[0]) if run.own_steps else 0,
        redone=books.redone_steps,
        ended=ending.kind,
        reason=ending.reason,
        spans=[Span(state=name, start=clock.unix(a), end=clock.unix(b)) for name, a, b in _spans(books, ending, normal)],
    )


def _spans(books: RunBooks, ending: AttemptEnding, normal: HangThreshold) -> list[tuple[str, float, float]]:
    run = books.run
    ends = [process.last_step_end for process in run.processes if process.last_step_end is not None]
    first = books.first_begin if books.first_begin is not None else run.end
    last = max(ends, default=run.end)
    again = books.redone_until if books.redone_until is not None else first
    spans = [("initialisation", run.start, first), ("lost_work", first, again), (NEW_STEPS, again, last)]
    if ends:
        most_in_order = 2 * sum(process.left_in_order for process in run.processes) >= len(run.processes)
        lost = (ending.failed or ending.lasts) and not most_in_order  # as in the books, where each process has a tail of its own
        spans.append((_tail_state(ending, run.end - last, normal, lost=lost), last, run.end))
    spans = _over(spans, "restore", merged(one for process in run.processes for one in process.restores))
    return _over(spans, "hung", [(hang.since, hang.until) for hang in books.hangs])


def _tail_state(ending: AttemptEnding, seconds: float, normal: HangThreshold, *, lost: bool) -> str:
    if not lost:
        return NEW_STEPS if ending.kind == "running" else "unexplained"
    return "hung" if ending.hang is not None or seconds >= normal.hang_seconds else "lost_work"


def _over(spans: Sequence[tuple[str, float, float]], state: str, intervals: Sequence[Interval]) -> list[tuple[str, float, float]]:
    """Lay intervals of a state over spans, which stay in order and without gaps."""
    found = list(spans)
    for start, end in intervals:
        cut = []
        for name, a, b in found:
            cut += [(name, a, min(b, start)), (state, max(a, start), min(b, end)), (name, max(a, end), b)]
        found = [(name, a, b) for name, a, b in cut if b > a]
    return _joined([(name, a, b) for name, a, b in found if b > a])


def _joined(spans: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    joined: list[tuple[str, float, float]] = []
    for name, start, end in spans:
        if joined and joined[-1][0] == name:
            joined[-1] = (name, joined[-1][1], end)
        else:
            joined.append((name, start, end))
    return joined
