"""The part of a job's records that is about a window of time, so that everything that is found out of a run can be found out of it.

What is about a process or about the job as a whole stays: starts and ends, and which checkpoints and data shards are not sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records

_Row = TypeVar("_Row", bound=records.Record)


def within(job: JobRecords, start: float, end: float) -> JobRecords:
    """Return what of a job is about a window, in Unix seconds.

    What lasts belongs to the window that its middle is in: so no step is counted in two windows next to each other, and a moment
    that was rounded to milliseconds on its way through an address changes nothing.

    Raises:
        TachoscopeError: the job has steps, and none of them is in the window.
    """

    def rows_within(rows: Sequence[_Row]) -> list[_Row]:
        return [row for row in rows if start <= row.time <= end]

    middles = job.steps.column("time") - job.steps.column("wall_seconds") / 2
    steps = job.steps.take((middles >= start) & (middles <= end))
    if job.steps and not steps:
        raise no_step_within(job.job, start, end, first=float(job.steps.column("time").min()), last=job.steps.last_time())
    beats = job.heartbeats.column("time") - job.heartbeats.windows / 2
    return replace(
        job,
        steps=steps,
        heartbeats=job.heartbeats.take((beats >= start) & (beats <= end)),
        collectives=_collectives(job.collectives, start, end),
        checkpoints=rows_within(job.checkpoints),
        restores=rows_within(job.restores),
        failures=[row for row in job.failures if start <= (row.gone_time or row.time) <= end],
        hangs=[row for row in job.hangs if row.since_time <= end and row.time >= start],
        restarts=rows_within(job.restarts),
        notices=rows_within(job.notices),
        memory=rows_within(job.memory),
        out_of_memory=[row for row in job.out_of_memory if start <= (row.killed_time or row.time) <= end],
        integrity=rows_within(job.integrity),
        updates=rows_within(job.updates),
        compilations=rows_within(job.compilations),
        shard_reads=rows_within(job.shard_reads),
        shard_failures=rows_within(job.shard_failures),
        requests=[row for row in job.requests if start <= row.time - row.wall_seconds / 2 <= end],
        engine_windows=[row for row in job.engine_windows if start <= row.time - row.window_seconds / 2 <= end],
    )


def _collectives(rows: Sequence[records.CollectiveDone], start: float, end: float) -> list[records.CollectiveDone]:
    """Return the summaries of the window, their steps counted from its begin: a reader divides by the steps they are about."""
    before: dict[str, int] = {}
    for row in rows:
        if row.time < start:
            before[row.writer] = max(row.step, before.get(row.writer, 0))
    kept = [row for row in rows if start <= row.time <= end]
    return [msgspec.structs.replace(row, step=row.step - before[row.writer]) if before.get(row.writer) else row for row in kept]


def no_step_within(job: str, start: float, end: float, *, first: float, last: float) -> TachoscopeError:
    """Return the error for a window without steps, with the times of the first and last step of the job."""
    window = f"in the window {moment(start)} to {moment(end)}" if start > 0 else f"before {moment(end)}"
    return TachoscopeError(
        f"no step of job {job!r} is {window}",
        fix=f"its steps ended from {moment(first)} to {moment(last)}; choose a window within, or the whole run",
    )


def moment(unix: float) -> str:
    """Return Unix seconds as people read them."""
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
