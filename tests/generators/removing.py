"""Takes signals away from recorded jobs, as if they had never been measured: what is left is what another machine would tell.

A phase that was not seen is not told from one that never happened, so only those are taken away whose time then lies where no phase
is: a loader, a way to save or to evaluate that the probe does not know. Garbage collections it sees wherever there is Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import msgspec

from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.gpu_samples import Gpus
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.records.records import Heartbeat, Phase, StepDone

Removal = Callable[[JobRecords], JobRecords]
KINDS = tuple(one.name for one in fields(JobRecords) if str(one.type).startswith("list[records."))
"""Kinds of records that lie in `JobRecords` as lists: all but steps and heartbeats."""


def _steps(change: Callable[[StepDone], StepDone]) -> Removal:
    return lambda job: replace(job, steps=StepTable.of(change(step) for step in job.steps))


def _beats(change: Callable[[Heartbeat], Heartbeat]) -> Removal:
    return lambda job: replace(job, heartbeats=Heartbeats.of(change(beat) for beat in job.heartbeats))


def without_clocks(step: StepDone) -> StepDone:
    return msgspec.structs.replace(step, cpu_seconds={}, run_delay_seconds={})


def without_run_delay(step: StepDone) -> StepDone:
    return msgspec.structs.replace(step, run_delay_seconds={})


def without_cpu_clock(step: StepDone) -> StepDone:
    return msgspec.structs.replace(step, cpu_seconds={})


def without_device_events(step: StepDone) -> StepDone:
    return msgspec.structs.replace(step, device_seconds={})


def unseen(phase: Phase, goes_to: Phase) -> Removal:
    """Return the removal of a phase that the probe did not see: its time and CPU time stay in the phase around it."""

    def change(step: StepDone) -> StepDone:
        def moved(seconds: dict[str, float]) -> dict[str, float]:
            left = {name: value for name, value in seconds.items() if name != phase}
            return left | {goes_to: left.get(goes_to, 0.0) + seconds[phase]} if phase in seconds else seconds

        return msgspec.structs.replace(step, phase_seconds=moved(step.phase_seconds), cpu_seconds=moved(step.cpu_seconds))

    return _steps(change)


def of_rank(rank: int, what: Removal) -> Removal:
    """Return a removal for the records of one rank only."""

    def removed(job: JobRecords) -> JobRecords:
        less = what(job)
        steps = StepTable.of(b if a.rank == rank else a for a, b in zip(job.steps, less.steps, strict=True))
        beats = [beat for beat in job.heartbeats if beat.rank != rank or beat in less.heartbeats]
        return replace(less, steps=steps, heartbeats=Heartbeats.of(beats))

    return removed


def without_rank(rank: int) -> Removal:
    """Return the removal of all that one rank wrote; the others still say how many ranks there are."""

    def removed(job: JobRecords) -> JobRecords:
        writers = {start.writer for start in job.starts if start.rank == rank}
        return replace(
            job,
            **{name: [row for row in getattr(job, name) if row.rank != rank] for name in KINDS},
            steps=job.steps.take(job.steps.column("rank") != rank),
            heartbeats=job.heartbeats.take(job.heartbeats.column("rank") != rank),
            gpus=replace(job.gpus, by_writer={w: s for w, s in job.gpus.by_writer.items() if w not in writers}),
        )

    return removed


def every(nth: int, what: Removal) -> Removal:
    """Return a removal that leaves one step of `nth` as it was."""

    def removed(job: JobRecords) -> JobRecords:
        pairs = zip(job.steps, what(job).steps, strict=True)
        return replace(job, steps=StepTable.of(a if a.step % nth == 0 else b for a, b in pairs))

    return removed


def without_kind(name: str) -> Removal:
    """Return the removal of all records of a kind."""
    return lambda job: replace(job, **{name: []})


REMOVALS: dict[str, Removal] = {
    **{f"records: {name}": without_kind(name) for name in KINDS},
    "records: steps": lambda job: replace(job, steps=StepTable()),
    "records: heartbeats": lambda job: replace(job, heartbeats=Heartbeats()),
    "heartbeats of rank 1": of_rank(1, lambda job: replace(job, heartbeats=Heartbeats())),
    "what the heartbeats saw": _beats(lambda beat: msgspec.structs.replace(beat, wait_samples={}, where={})),
    "signals of the heartbeats": _beats(lambda beat: msgspec.structs.replace(beat, signals={})),
    "waiting for a core": _steps(without_run_delay),
    "CPU clocks": _steps(without_cpu_clock),
    "all clocks": _steps(without_clocks),
    "all clocks of rank 1": of_rank(1, _steps(without_clocks)),
    "CPU clocks of rank 1": of_rank(1, _steps(without_cpu_clock)),
    "waiting for a core of rank 1": of_rank(1, _steps(without_run_delay)),
    "all clocks of rank 0": of_rank(0, _steps(without_clocks)),
    "clocks in most steps": every(10, _steps(without_clocks)),
    "records of rank 0": without_rank(0),
    "records of rank 1": without_rank(1),
    "times of the loader": unseen("data_wait", "other"),
    "times of checkpoints": unseen("checkpoint", "other"),
    "times of evaluation": unseen("evaluation", "other"),
    "times of collectives": unseen("collective", "other"),
    "device events": _steps(without_device_events),
    "samples of the GPUs": lambda job: replace(job, gpus=Gpus()),
}
