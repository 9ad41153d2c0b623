"""What is known of a job's processes without its steps one by one: who they are, what they say of themselves, how they ended."""

from __future__ import annotations

import numpy as np

from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.jobs import notes as job_notes
from tachoscope_core.records.records import GRADIENT_STEPS, OTHER_THREADS

_STEPS_KEPT = 20
"""First and last steps of a process that tell which phases it knows: of a validation at its end alone they would not."""


def facts(job: JobRecords) -> job_notes.Facts:
    """Return what the notes are made of."""
    found = job_notes.Facts([*job.starts, *job.failures])
    steps = steps_of_writers(job, first=_STEPS_KEPT, last=_STEPS_KEPT)
    times, numbers = (steps.last_of_each_writer(name) for name in ("time", "step"))
    for writer, phases in steps.phases_of_each_writer().items():
        found.add_steps(writer, last=times[writer], newest=int(numbers[writer]), phases=phases)
    for writer, beats in job.heartbeats.by_writer().items():
        found.add_beats(
            writer,
            last=beats.last_time(),
            newest=int(beats.column("step").max()),
            threads=int(beats.most(OTHER_THREADS)),
            gradient_steps=int(beats.most(GRADIENT_STEPS)),
        )
    for row in job.ends:
        found.add_record(row)
    return found


def steps_of_writers(job: JobRecords, *, first: int, last: int) -> StepTable:
    """Return the first and the last steps of each process."""
    codes = job.steps.column("writer")
    places = [np.flatnonzero(codes == code) for code in dict.fromkeys(codes.tolist())]
    kept = [own if len(own) <= first + last else np.append(own[:first], own[-last:]) for own in places]
    return job.steps.take(np.concatenate(kept)) if kept else job.steps
