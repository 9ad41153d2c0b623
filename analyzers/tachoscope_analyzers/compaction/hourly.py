"""Judges a long job hour by hour while it is compacted, by the rules of `analyze`; an hour in which something changes in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.load import JobRecords, of_rows
from tachoscope_analyzers.records.step_table import StepTable, StepTableBuilder
from tachoscope_core.records import records
from tachoscope_core.report.report import IntervalFinding, JudgedInterval, Report

_MOST_FINDINGS = 3


class Judging:
    """Judges the hours of a job in the order in which its records were written.

    Args:
        judge: returns the reports on records, in the order of time. starts: of the processes of the job that are known so far.
    """

    def __init__(self, job: str, judge: Callable[[JobRecords], Sequence[Report]], starts: Sequence[records.JobStarted]) -> None:
        self._job, self._judge = job, judge
        self._starts = {start.writer: start for start in starts}
        self._waiting: StepTable = StepTable()

    def intervals(self, steps: StepTable, beats: Heartbeats, beside: Sequence[records.AnyRecord]) -> list[JudgedInterval]:
        """Return the intervals of each attempt with steps that all of its ranks recorded.

        Steps that some ranks did not record yet are judged with the next hour, because nodes ship at different times. At midnight
        up to as much is not judged as a node ships at once, because days are compacted independently.
        """
        self._starts |= {row.writer: row for row in beside if isinstance(row, records.JobStarted)}
        builder = StepTableBuilder()
        for part in (self._waiting, steps):
            builder.add_table(part)
        steps, self._waiting = builder.table(), StepTable()
        others = [row for row in beside if not isinstance(row, records.JobStarted)]
        found = []
        for attempt in np.unique(steps.column("attempt")).tolist():
            own = steps.in_attempt(attempt)
            last = min(own.last_of_each_writer("step").values())
            self._waiting = own.take(own.column("step") > last)
            found += self._judged(attempt, own.take(own.column("step") <= last), beats, others)
        return found

    def _judged(
        self, attempt: int, steps: StepTable, beats: Heartbeats, others: Sequence[records.AnyRecord]
    ) -> list[JudgedInterval]:
        known = [start for start in self._starts.values() if start.attempt == attempt]
        own = [row for row in others if row.attempt == attempt]
        beats = beats.take(beats.column("attempt") == attempt)
        try:
            return [_interval(one, attempt) for one in self._judge(of_rows(self._job, [*known, *own], beats, steps))]
        except Exception:  # records are foreign input: an hour that cannot be judged must still be compacted
            return []


def _interval(report: Report, attempt: int) -> JudgedInterval:
    grave = [one for one in report.findings if one.severity in ("critical", "warning")]
    return JudgedInterval(
        start=report.window.start,
        end=report.window.end,
        attempt=attempt,
        steps=report.window.steps,
        step_seconds=report.step_seconds.mean,
        compute_share=report.goodput,
        findings=[
            IntervalFinding(
                class_=one.class_, severity=one.severity, seconds_per_step=one.seconds_per_step, share=one.share, ranks=one.ranks
            )
            for one in grave[:_MOST_FINDINGS]
        ],
    )
