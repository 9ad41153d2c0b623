"""What bounds the conclusions about a life: who told how long it was, whose records are missing, whose clocks differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tachoscope_analyzers.attempts.allocations import JobAllocations
from tachoscope_analyzers.attempts.notes import at_once
from tachoscope_analyzers.attempts.processes import Clock
from tachoscope_analyzers.attempts.step_numbering import Run
from tachoscope_analyzers.life.ledger import Waterfall
from tachoscope_analyzers.records.facts import facts
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.jobs import notes as job_notes
from tachoscope_core.report.report import QualityNote

_AFTER_SHARE = 0.02
"""Of what was allocated: less of it after the last process is not worth a line."""


def notes(job: JobRecords, runs: Sequence[Run], held: JobAllocations, total: Waterfall, clock: Clock) -> list[QualityNote]:
    """Return the notes, what limits most first."""
    found = [*at_once(runs, clock), *_without_steps(job, runs, held), *_of_allocation(held), *_of_numbering(runs)]
    if dropped := job.source.dropped:
        found.append(_limited(f"{dropped} records were dropped", "the time of their steps is unexplained"))
    if total.after_seconds > _AFTER_SHARE * total.allocated_seconds:
        share = f"{total.after_seconds / total.allocated_seconds:.1%}"
        found.append(
            _note(
                f"{share} of the time lies between a rank's last word and the end of its command or allocation",
                "it counts as unexplained: nothing records what happens there",
            )
        )
    return [*found, *_clocks(runs)]


def _limited(what: str, means: str) -> QualityNote:
    return QualityNote(what=what, severity="limited", means=means)


def _note(what: str, means: str) -> QualityNote:
    return QualityNote(what=what, severity="note", means=means)


def _of_allocation(held: JobAllocations) -> list[QualityNote]:
    """Note who says how long the job held its ranks, and whose time is counted without a record."""
    found = []
    if held.denominator == "records":
        found.append(
            _limited(
                "only the ranks tell how long the job held its accelerators",
                "time before the first record of an attempt and after the last is not known; with `tachoscope run`, a node agent "
                "or --scheduler it is",
            )
        )
    if held.ignored:
        more = f" and {len(held.ignored) - 3} more" if len(held.ignored) > 3 else ""
        found.append(
            _note(
                f"the scheduler also reports {', '.join(held.ignored[:3])}{more}",
                "no attempt of this job was matched to it, so it counts for nothing: neither its time nor its queue",
            )
        )
    unexplained = "their time counts as unexplained"
    if held.missing_ranks:
        found.append(_limited(f"{held.missing_ranks} of the ranks left no record", unexplained))
    if held.unseen_accelerators:
        more = f"the scheduler gave {held.unseen_accelerators} accelerators more than ranks left records"
        found.append(_limited(more, unexplained))
    return found


def _of_numbering(runs: Sequence[Run]) -> list[QualityNote]:
    """Note attempts of which it is not sure at which step of the job they began."""
    new_runs = [
        _note(
            f"attempt {run.attempt} began again after a completed one: separate runs under one name?",
            "its steps count as new; nothing that it restored was seen, so they would be lost work if it was to go on",
        )
        for run in runs
        if run.is_new_run
    ]
    guessed = [
        _limited(
            f"attempt {run.attempt} restored a checkpoint that cannot be tied to its save for sure: {run.guessed}",
            "which of its steps were done again may be wrong",
        )
        for run in runs
        if run.guessed
    ]
    return [*new_runs, *guessed]


def _without_steps(job: JobRecords, runs: Sequence[Run], held: JobAllocations) -> list[QualityNote]:
    """Note starts of the command of which no process recorded anything, with how the last of them ended, and why."""
    silent = [one for one in held.launches if not any(run.start <= one.end and one.start <= run.end for run in runs)]
    trained = any(run.own_steps for run in runs)
    if trained and not silent:
        return []
    words = "no training step was seen"
    if silent:
        ended = silent[-1].ended
        how = "its end was not seen" if ended is None else ended.reason or "it completed"
        words += f" in {len(silent)} starts of the command; the last: {how}" if len(silent) > 1 else f" of a command: {how}"
    why = job_notes.why_unrecorded(silent[-1].ended, silent[-1].command) if silent else job_notes.why_no_steps(facts(job))
    return [
        QualityNote(
            what=words,
            severity="limited" if trained else "bad",
            means=f"{why}; its time counts as initialisation",
        )
    ]


def _clocks(runs: Sequence[Run]) -> list[QualityNote]:
    """Note where an attempt seems to begin before the one before it was over: processes of different hosts, by their clocks."""
    worst = 0.0
    for before, after in pairwise(runs):
        if before.ran_with(after):
            continue
        hosts = {process.host for process in (*before.processes, *after.processes)}
        first = min((process.first_begin for process in after.processes if process.first_begin is not None), default=None)
        last = max((process.last_step_end for process in before.processes if process.last_step_end is not None), default=None)
        if first is not None and last is not None and len(hosts) > 1:
            worst = max(worst, last - first)
    if worst <= 0:
        return []
    return [
        QualityNote(
            what=f"attempts overlap by {worst:.2f} s: the clocks of the hosts differ by that at least",
            severity="note",
            means="recovery times across hosts are as uncertain",
        )
    ]
