"""What is known of a job's processes without its steps one by one: who they are, what they say of themselves, how they ended."""

from __future__ import annotations

from collections import defaultdict

from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.jobs import notes as job_notes
from tachoscope_core.records.records import StepDone

_STEPS_KEPT = 20
"""First and last steps of a process that tell which phases it knows: of a validation at its end alone they would not."""


def facts(job: JobRecords) -> job_notes.Facts:
    """Return what the notes are made of."""
    return job_notes.Facts(
        [*job.starts, *job.failures, *steps_of_writers(job, first=_STEPS_KEPT, last=_STEPS_KEPT), *job.heartbeats, *job.ends]
    )


def steps_of_writers(job: JobRecords, *, first: int, last: int) -> list[StepDone]:
    """Return the first and the last steps of each process."""
    rows: dict[str, list[StepDone]] = defaultdict(list)
    for row in job.steps:
        rows[row.writer].append(row)
    return [row for all_ in rows.values() for row in (all_ if len(all_) <= first + last else [*all_[:first], *all_[-last:]])]
