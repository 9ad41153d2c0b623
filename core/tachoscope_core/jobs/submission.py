"""Submits and cancels training jobs: what the commands and the watch's API do, and refuse, alike. No process is started here."""

from __future__ import annotations

import time
from pathlib import Path

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs import code_commit, data_policy
from tachoscope_core.jobs.submitted_jobs import (
    ENDED,
    Cancellation,
    SubmittedJob,
    TrainingJobConflictError,
    TrainingJobs,
    TrainingJobStatus,
)
from tachoscope_core.jobs.training_job import TrainingJob
from tachoscope_core.storage.store import Store

MOST_KEY_CHARACTERS = 200


class InvalidSubmissionError(TachoscopeError):
    """What was submitted could never run."""


def submit(store: Store, job: TrainingJob, *, key: str | None = None, again: bool = False, client: str = "") -> TrainingJobStatus:
    """Store a job, or return the one that was submitted with this key before.

    Args:
        key: made from the specification if not given. again: let a job that failed or was cancelled go on, as it is specified now.
        client: of the watch's API, whose job it is; empty: the command.

    Raises:
        InvalidSubmissionError: the pods of the job cannot reach the store, the key cannot be one, or the data policy refuses it.
        TrainingJobConflictError: the name or the key is another job's, or the job is in a state that excludes it.
    """
    check_store(job, store)
    check_data(job)
    jobs, submitted = TrainingJobs(store), submission(job, key, client)
    if key is not None:
        _check_key(jobs, job.name, key)
    if again:
        jobs.submit_again(submitted)
    else:
        jobs.submit(submitted)
    status = jobs.status(job.name)
    if status.state in {"failed", "cancelled"}:
        raise TrainingJobConflictError(
            f"training job {job.name!r} was submitted before and is {status.state}", fix="add --again to let it go on"
        )
    return status


def submission(job: TrainingJob, key: str | None = None, client: str = "") -> SubmittedJob:
    """Return the document of a submission at this time."""
    if key is not None and (not key or len(key) > MOST_KEY_CHARACTERS or not key.isprintable()):
        raise InvalidSubmissionError(
            f"{key[:MOST_KEY_CHARACTERS]!r} is not usable as a key", fix=f"use 1 to {MOST_KEY_CHARACTERS} printable characters"
        )
    return SubmittedJob(job=job, key=key or job.digest[:16], submitted_at=time.time(), submitted_by=client)


def cancel(store: Store, name: str, asked_by: str) -> TrainingJobStatus:
    """Ask for the end of a job; its supervisor ends it.

    Raises:
        NoTrainingJobError: there is none. TrainingJobConflictError: it has ended.
    """
    jobs = TrainingJobs(store)
    status = jobs.status(name)
    if status.state in ENDED:
        raise TrainingJobConflictError(f"training job {name!r} has ended: {status.state}", fix=f"tachoscope status {name}")
    if status.cancellation is None:
        jobs.cancel(name, Cancellation(asked_at=time.time(), asked_by=asked_by))
    return jobs.status(name)


def check_data(job: TrainingJob) -> None:
    """Refuse data that the job may not read.

    Raises:
        InvalidSubmissionError: the data policy refuses it. TachoscopeError: the policy cannot be read.
    """
    if why := data_policy.refusal(job):
        raise InvalidSubmissionError(
            f"training job {job.name!r} is refused: {why}", fix="write data: {snapshot, project, purpose} as the policy allows"
        )


def check_code(job: TrainingJob) -> None:
    """Refuse a folder of this machine, or of its cluster, that does not have the commit which the job names.

    Raises:
        InvalidSubmissionError: it has another one, or changes, or this cannot be told.
    """
    if not job.code_commit or job.engine not in {"local", "slurm"}:
        return
    why = code_commit.refusal(job.working_directory, job.code_commit)
    if why is None:
        why = f"{job.working_directory} is not a checkout of git that can be read"
    if why:
        raise InvalidSubmissionError(f"training job {job.name!r} is refused: {why}", fix="check out and commit what should run")


def _check_key(jobs: TrainingJobs, name: str, key: str) -> None:
    for other in jobs.names():
        if other != name and (there := jobs.submitted(other)) is not None and there.key == key:
            raise TrainingJobConflictError(
                f"the key {key!r} is that of training job {other!r}", fix=f"use another key, or submit it by its name, {other}"
            )


def check_store(job: TrainingJob, store: Store) -> None:
    """Refuse a store, or files of secrets, that the pods of a job cannot reach.

    Raises:
        InvalidSubmissionError: it is a directory outside of the job's volumes, or they are.
    """
    mounted = {**job.kubernetes.volumes, **job.kubernetes.secret_volumes} if job.kubernetes else {}
    for name, path in job.secrets.items() if job.kubernetes else ():
        if not any(Path(path).is_relative_to(one) for one in mounted):
            raise InvalidSubmissionError(
                f"pods of {job.name} have no file {path}, of the secret {name}",
                fix="mount a Secret there: kubernetes.secret_volumes",
            )
    if job.kubernetes and store.local and not any(Path(store.root).is_relative_to(path) for path in job.kubernetes.volumes):
        raise InvalidSubmissionError(
            f"pods of {job.name} have no directory {store.root}, which is the store",
            fix="use a store of objects (s3://...), or mount it at this path: kubernetes.volumes",
        )
