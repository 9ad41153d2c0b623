"""What a life lost, by class, with the evidence: from its books, endings and recoveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tachoscope_analyzers.advice.interval import of_life
from tachoscope_analyzers.attempts.endings import AttemptEnding
from tachoscope_analyzers.attempts.hangs import Hang
from tachoscope_analyzers.attempts.processes import Clock
from tachoscope_analyzers.life.findings import Loss
from tachoscope_analyzers.life.ledger import RunBooks, Waterfall
from tachoscope_core.report.job_life import NOBODYS, Advice, CheckpointCosts, Recovery
from tachoscope_core.report.report import Evidence

_LOOK = "see what that process does and what it waits for (the runbook says how), then let it go on or end it"


def lost_work(
    books: Sequence[RunBooks], endings: Sequence[AttemptEnding], recoveries: Sequence[Recovery], total: Waterfall
) -> Loss:
    """Return the work that failures cost: the step under way, and the steps done again after it."""
    events: list[float] = []
    for book, ending in zip(books, endings, strict=True):
        if book.redone_seconds and events:
            events[-1] += book.redone_seconds
        elif book.redone_seconds:
            events.append(book.redone_seconds)  # the failure before it left no record
        if ending.failed:
            events.append(book.tail_seconds)
    ended = [one for one in recoveries if one.detect_seconds is not None]
    failed = [one for one in ended if one.kind not in NOBODYS]
    evidence = [
        _count("attempts that failed", len(failed)),
        _count("steps done again", sum(book.redone_steps for book in books)),
    ]
    whole = [one.total_seconds for one in ended if one.total_seconds is not None]
    if whole:
        evidence.append(_seconds("from a failure to the first new step, longest", max(whole)))
    overhead = [state for state in ("initialisation", "restore") if total.states.get(state)]
    evidence += [_seconds(f"{state} over the life, rank-seconds", total.states[state]) for state in overhead]
    guessed = any(book.run.guessed for book in books)
    whose = {one.rank for one in failed}
    rank = whose.pop() if len(whose) == 1 else None  # if it is always the same one; those of several are chance
    return Loss(
        "lost_work",
        [event for event in events if event > 0],
        "all" if rank is None else [rank],
        evidence,
        certainty=0.7 if guessed else 1.0,
        action="" if failed else "checkpoint more often, or save on SIGTERM",
    )


def checkpoint_stall(costs: CheckpointCosts | None, total: Waterfall, advice: Sequence[Advice]) -> Loss:
    """Return what saving took while training stood still. advice: on how often to save."""
    seconds = total.states.get("checkpoint", 0.0)
    evidence = []
    if costs is not None and costs.saves:
        evidence = [_count("checkpoints", costs.saves), _seconds("training stood still for one, median", costs.blocking_seconds)]
        if costs.interval_seconds is not None:
            evidence.append(_seconds("from one checkpoint to the next, median", costs.interval_seconds))
        if costs.slowdown is not None:
            evidence.append(
                Evidence(signal="last quarter of the saves against the first", value=costs.slowdown, unit="times as long")
            )
    count = max(costs.saves if costs is not None else 0, 1)
    return Loss("checkpoint_stall", [seconds / count] * count if seconds else [], "all", evidence, action=of_life(advice))


def hang(books: Sequence[RunBooks], endings: Sequence[AttemptEnding], clock: Clock) -> Loss:
    """Return the time in which no rank went on, with who was stuck, since when, and where its code was."""
    found: list[Hang] = []
    events: list[float] = []
    for book, ending in zip(books, endings, strict=True):
        own = [*book.hangs, *([ending.hang] if ending.hang is not None else [])]
        lasted = sum(one.until - one.since for one in own)
        found += own
        events += [book.hung_seconds * (one.until - one.since) / lasted for one in own if lasted > 0]
    evidence = [_hang(one, clock) for one in found]
    ranks = sorted({one.process.rank for one in found if one.process is not None})
    all_named = all(one.process is not None for one in found)
    passed = all(ending.hang is None for ending in endings)
    action = "it continued by itself; if it happens again, check that host" if passed else ""
    if now := next((ending.hang for ending in endings if ending.lasts and ending.hang is not None), None):
        return Loss(
            "hang",
            events,
            "all" if now.process is None else [now.process.rank],
            [_hang(now, clock), *(row for row, one in zip(evidence, found, strict=True) if one is not now)],
            certainty=1.0 if now.process is not None else 0.8,
            level="critical",
            action=f"{_hang(now, clock).signal} ({now.why}): {_LOOK}",
            cause="now",
            where=now.where,
        )
    return Loss(
        "hang",
        events,
        ranks if ranks and all_named else "all",
        evidence,
        certainty=1.0 if all_named else 0.8,
        level="info",
        action=action,
    )


def _hang(one: Hang, clock: Clock) -> Evidence:
    process = one.process
    who = "a rank that cannot be determined" if process is None else f"rank {process.rank} on {process.host}"
    since = datetime.fromtimestamp(clock.unix(one.since), UTC).isoformat(timespec="seconds")
    line = f", at {one.where}" if one.where else ""
    return Evidence(signal=f"{who} was stuck since {since}{line}", value=one.until - one.since, unit="seconds", source=one.why)


def _count(signal: str, value: int) -> Evidence:
    return Evidence(signal=signal, value=float(value), source="records of all attempts")


def _seconds(signal: str, value: float) -> Evidence:
    return Evidence(signal=signal, value=value, unit="seconds", source="records of all attempts")
