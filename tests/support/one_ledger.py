"""The seconds by state of the steps that a report judges: by the report on steps, and by that on the job's whole life."""

from __future__ import annotations

import numpy as np

from tachoscope_analyzers.attempts.attribution import blocks
from tachoscope_analyzers.attempts.processes import Clock, processes
from tachoscope_analyzers.ledger.states import by_step
from tachoscope_analyzers.records.life_records import of_job
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import aligned


def of_report(job: JobRecords) -> dict[str, float]:
    return {state: float(seconds.sum()) for state, seconds in by_step(aligned(job)).items()}


def of_life(job: JobRecords) -> dict[str, float]:
    judged, found = aligned(job).numbers, dict.fromkeys(of_report(job), 0.0)
    for block in blocks(processes(of_job(job), Clock(job))):
        rows = np.isin(block.numbers, judged)
        for state in found:
            found[state] += float(block.states[state][rows].sum())
    return found
