"""What is shown of a training job that was submitted, by the commands and over the watch's API."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tachoscope_core.jobs.submitted_jobs import ActionName, Attempt, Decision, State, TrainingJobStatus
from tachoscope_core.jobs.training_job import EngineName


class AttemptShown(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of a training job. Times are Unix seconds."""

    number: Annotated[int, Meta(description="From 0.")]
    engine_id: Annotated[
        str, Meta(description="The engine's name of it, such as a job id of Slurm; empty: it is not submitted yet.")
    ]
    submitted_at: Annotated[float, Meta(description="When it was submitted.")]
    ended_at: Annotated[float | None, Meta(description="When its end was seen; null: it has not ended.")]
    exit_code: Annotated[int | None, Meta(description="Of its command; null: not known.")]
    checkpoint: Annotated[str, Meta(description="From which it began; empty: from none, or not known yet.")]
    last_step: Annotated[
        int | None,
        Meta(description="The highest of the whole job until its end, or so far by the records in the store; null: not known."),
    ]
    decision: Annotated[Decision | None, Meta(description="What followed; null: it has not ended.")]
    reason: Annotated[str, Meta(description="Why.")]
    excluded_hosts: Annotated[list[str], Meta(description="On which it may not run.")]
    hosts: Annotated[list[str], Meta(description="On which it runs or ran, by the engine's names; empty: not known.")]
    log: Annotated[str, Meta(description="File with its output, or the command that shows it.")]


class ActionShown(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done for a training job beside a restart."""

    time: Annotated[float, Meta(description="Unix seconds.")]
    attempt: Annotated[int, Meta(description="In which it happened.")]
    what: Annotated[ActionName, Meta(description="The key below `actions` that allows it.")]
    applied: Annotated[bool, Meta(description="False: a dry run, or the budget was used up.")]
    text: Annotated[str, Meta(description="What was done, why, and its risk.")]
    undo: Annotated[str, Meta(description="Command that undoes it; empty: nothing was done.")]


class TrainingJobView(msgspec.Struct, frozen=True, kw_only=True):
    """A training job that was submitted."""

    name: Annotated[str, Meta(description="Its name.")]
    key: Annotated[str, Meta(description="A submission with the same key is this job.")]
    state: Annotated[State, Meta(description="Follows from its attempts.")]
    engine: Annotated[EngineName, Meta(description="What runs it.")]
    nodes: Annotated[int, Meta(description="Of each attempt.")]
    submitted_at: Annotated[float, Meta(description="Unix seconds.")]
    submitted_by: Annotated[str, Meta(description="Client of the watch's API; empty: the command.")]
    cancelled_by: Annotated[str, Meta(description="Who asked for its end; empty: nobody.")]
    attempts: Annotated[list[AttemptShown], Meta(description="In order.")]
    actions: Annotated[list[ActionShown], Meta(description="In order of time.")]
    needs_review: Annotated[bool, Meta(description="Data were left out by an action: a person should look at them.")]


def view_of(status: TrainingJobStatus, last_step: int | None = None) -> TrainingJobView:
    """Return what is shown of a job. last_step: of the attempt that runs."""
    job, cancellation = status.submitted.job, status.cancellation
    return TrainingJobView(
        name=job.name,
        key=status.submitted.key,
        state=status.state,
        engine=job.engine,
        nodes=job.nodes,
        submitted_at=status.submitted.submitted_at,
        submitted_by=status.submitted.submitted_by,
        cancelled_by=cancellation.asked_by if cancellation is not None else "",
        attempts=[_shown(one, last_step) for one in status.attempts],
        actions=[
            ActionShown(time=one.time, attempt=one.attempt, what=one.what, applied=one.applied, text=one.text, undo=one.undo)
            for one in status.actions
        ],
        needs_review=status.needs_review,
    )


def _shown(attempt: Attempt, last_step: int | None) -> AttemptShown:
    begin, end = attempt.begin, attempt.end
    return AttemptShown(
        number=attempt.number,
        engine_id=attempt.engine_id,
        submitted_at=attempt.intended_at,
        ended_at=attempt.ended_at or None,
        exit_code=end.exit_code if end is not None else None,
        checkpoint=begin.checkpoint if begin is not None else end.checkpoint if end is not None else "",
        last_step=attempt.highest_step if attempt.ended_at else last_step,
        decision=attempt.decision,
        reason=attempt.reason,
        excluded_hosts=list(attempt.excluded_hosts),
        hosts=sorted(attempt.hosts.values()),
        log=attempt.log,
    )
