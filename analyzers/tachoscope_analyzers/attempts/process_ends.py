"""The processes and attempts of a job by the first and last steps of each process, which show how each began and ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tachoscope_analyzers.attempts.hangs import HangThreshold, normal_of
from tachoscope_analyzers.attempts.processes import Clock, RankProcess, processes
from tachoscope_analyzers.attempts.step_numbering import Run, runs
from tachoscope_analyzers.records.facts import steps_of_writers
from tachoscope_analyzers.records.life_records import LifeRecords, of_job
from tachoscope_analyzers.records.load import JobRecords

_STEPS_KEPT = 200
"""First and last steps of a process that are kept, for its end and its usual step."""


@dataclass(frozen=True, slots=True)
class ProcessEnds:
    """What is known of a job by the ends of its processes: `life.job` has only their first and last steps."""

    life: LifeRecords
    clock: Clock
    processes: Sequence[RankProcess]
    attempts: Sequence[Run]

    def normal(self) -> HangThreshold:
        """Return from when on a step of the job takes too long to be usual."""
        return normal_of(self.life, self.processes)


def process_ends(job: JobRecords) -> ProcessEnds:
    """Return the processes and attempts of a job."""
    few = replace(job, steps=steps_of_writers(job, first=_STEPS_KEPT, last=_STEPS_KEPT))
    life, clock = of_job(few), Clock(few)
    found = processes(life, clock)
    return ProcessEnds(life, clock, found, runs(found, clock))
