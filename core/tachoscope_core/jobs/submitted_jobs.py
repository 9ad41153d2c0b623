"""Training jobs that were submitted: what a supervisor needs to go on after any end of it. Documents in the store.

`training-jobs/<name>/job.json` is written once, by the submission; `attempts/<number>.json` by the job's supervisor, which is one
at a time; `attempts/<number>.begin.json` and `.end.json` by the attempt itself; `cancel.json` by `tachoscope cancel` or the watch's
API; `actions/*.json`, the log of what was done beside restarts, by the supervisor and by attempts; `saves/*.json` by each node of
an attempt. The state of a job is derived.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from typing import Literal, TypeVar

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.training_job import TrainingJob
from tachoscope_core.records.base import check_job_name, is_job_name
from tachoscope_core.report.failures import Failure
from tachoscope_core.storage.documents import read_document
from tachoscope_core.storage.store import Store

_ATTEMPT = re.compile(r"(\d{3,9})\.json")
_T = TypeVar("_T")
KEPT_SAVES = 5
"""Attempts whose saves stay noted."""

State = Literal["pending", "running", "restarting", "completed", "failed", "cancelled"]
ENDED: frozenset[State] = frozenset({"completed", "failed", "cancelled"})
Decision = Literal["restart", "completed", "failed", "cancelled"]


class NoTrainingJobError(TachoscopeError):
    """The store has no training job of this name."""


class TrainingJobConflictError(TachoscopeError):
    """Another training job, or the state of this one, excludes what was asked for."""


class SubmittedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was submitted.

    Attributes:
        key: a submission with the same key is this job. submitted_at: Unix seconds.
        submitted_by: client of the watch's API; empty: the command, which may do what the store's files allow.
    """

    job: TrainingJob
    key: str
    submitted_at: float
    submitted_by: str = ""

    @property
    def id(self) -> str:
        """Different for another job of the same name, in a store that was emptied."""
        return hashlib.sha256(f"{self.key} {self.submitted_at}".encode()).hexdigest()[:8]


class AttemptBegin(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt began, as its first node says: all nodes continue from this checkpoint, and no second process begins it."""

    started_at: float
    host: str
    checkpoint: str = ""


class AttemptEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended, as it says itself; one that was killed says nothing.

    Attributes:
        exit_code: as a shell gives it. checkpoint: from which it began; empty: from the first step.
        refused: why the command was not started; empty: it was.
    """

    started_at: float
    ended_at: float
    exit_code: int
    checkpoint: str = ""
    refused: str = ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt as its supervisor sees it: written before it is submitted, when it was, and when its end was judged.

    Attributes:
        intended_at, ended_at: Unix seconds; 0: it has not ended. excluded_hosts: on which it may not run.
        engine_id: the engine's name of it; empty: it was not submitted yet, as far as is known. log: where its output is.
        hosts: on which it runs or ran, by the name that its processes give; the value is the engine's name. Empty: not known.
        begin: None: it has not begun. failure: the first one by the records in the store; None: there is none, or it is not known.
        highest_step: of the whole job until its end. ended_by_engine: by preemption, a time limit, a lost node.
        decision: what followed from its end; None: it has not ended. reason: why, in words.
        next_excluded_hosts, next_delay_seconds: of the attempt that follows.
    """

    number: int
    intended_at: float
    engine_id: str = ""
    log: str = ""
    hosts: dict[str, str] = {}
    excluded_hosts: tuple[str, ...] = ()
    begin: AttemptBegin | None = None
    ended_at: float = 0.0
    end: AttemptEnd | None = None
    failure: Failure | None = None
    highest_step: int = 0
    ended_by_engine: bool = False
    decision: Decision | None = None
    reason: str = ""
    next_excluded_hosts: tuple[str, ...] = ()
    next_delay_seconds: float = 0.0


ActionName = Literal["quarantine_shards", "checkpoint_interval"]


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done for a job beside a restart, or would have been.

    Attributes:
        key: in the store: one that is decided again after a kill is the same. time: Unix seconds. attempt: in which it happened.
        applied: False: a dry run, or the budget was used up. text: what was done, why, and its risk. undo: how to undo it.
    """

    key: str
    time: float
    attempt: int
    what: ActionName
    applied: bool
    text: str
    undo: str = ""


class NotedSaves(msgspec.Struct, frozen=True, kw_only=True):
    """Records of the newest saves of a node's ranks, each a line of JSON, which their spool has too."""

    lines: tuple[str, ...]


class Cancellation(msgspec.Struct, frozen=True, kw_only=True):
    """A request to end the job."""

    asked_at: float
    asked_by: str


class TrainingJobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All that is stored of a job, and the state that follows from it."""

    submitted: SubmittedJob
    attempts: tuple[Attempt, ...] = ()
    actions: tuple[Action, ...] = ()
    cancellation: Cancellation | None = None

    @property
    def state(self) -> State:
        last = self.attempts[-1] if self.attempts else None
        if last is None:
            return "cancelled" if self.cancellation else "pending"
        if last.decision == "restart":
            return "cancelled" if self.cancellation else "restarting"
        return last.decision or ("running" if last.engine_id else "pending")

    @property
    def needs_review(self) -> bool:
        """Whether a person should look at data that an action left out."""
        return any(one.applied and one.what == "quarantine_shards" for one in self.actions)

    @property
    def actions_left(self) -> int:
        """How many actions the budget of the job still allows; dry runs count, so that the log is bounded as well."""
        return max(self.submitted.job.actions.most_actions - len(self.actions), 0)


class TrainingJobs:
    """The training jobs of a store. Methods raise TachoscopeError where it cannot be read or written.

    In a directory, documents of other users do not count: what is read here is run.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def names(self) -> list[str]:
        """Return the names of all jobs, sorted."""
        folders = self._store.folders(f"{self._store.root}/training-jobs")
        return sorted(filter(is_job_name, (path.rsplit("/", 1)[-1] for path in folders)))

    def submitted(self, name: str) -> SubmittedJob | None:
        """Return a job as it was submitted, without its attempts; None: there is none."""
        return self._read(f"{self._folder(name)}/job.json", SubmittedJob)

    def submit(self, submitted: SubmittedJob) -> SubmittedJob:
        """Store a new job, or return the one that was submitted with this key before.

        Raises:
            TrainingJobConflictError: the name is taken by another key or client, or the key by another specification.
        """
        name = submitted.job.name
        there = self.submitted(name)
        if there is None and self._store.create_training_job(name, "job.json", msgspec.json.encode(submitted)):
            return submitted
        there = there or self.status(name).submitted  # another process was faster
        _check_owner(there, submitted)
        if there.key != submitted.key:
            raise TrainingJobConflictError(
                f"training job {name!r} was submitted before to store {self._store.url}",
                fix=f"choose another name, or submit it with --again once it has ended; tachoscope status {name}",
            )
        if there.job != submitted.job:
            raise TrainingJobConflictError(
                f"training job {name!r} was submitted with the same key and another specification",
                fix="choose another name, or submit it with --again once it has ended",
            )
        return there

    def submit_again(self, submitted: SubmittedJob) -> None:
        """Let a job that failed or was cancelled go on, with the specification as it is now; its attempts are kept.

        Raises:
            NoTrainingJobError: there is none. TrainingJobConflictError: it has not ended, or is completed.
        """
        name = submitted.job.name
        status = self.status(name)
        if status.state not in {"failed", "cancelled"}:
            raise TrainingJobConflictError(f"training job {name!r} is {status.state}", fix=f"tachoscope status {name}")
        _check_owner(status.submitted, submitted)
        owner = submitted.submitted_by or status.submitted.submitted_by
        self._write(name, "job.json", msgspec.structs.replace(submitted, submitted_by=owner))
        self._store.remove([f"{self._folder(name)}/cancel.json"])
        if status.attempts and status.attempts[-1].decision != "restart":
            self.write_attempt(name, msgspec.structs.replace(status.attempts[-1], decision="restart", next_delay_seconds=0.0))

    def status(self, name: str) -> TrainingJobStatus:
        """Return what is stored of a job.

        Raises:
            NoTrainingJobError: there is none of this name.
        """
        folder = self._folder(name)
        submitted = self._read(f"{folder}/job.json", SubmittedJob)
        if submitted is None or submitted.job.name != name:
            raise NoTrainingJobError(f"store {self._store.url} has no training job {name!r}", fix="tachoscope status lists them")
        numbers = sorted(
            int(match[1])
            for path in self._store.find(f"training-jobs/{name}/attempts")
            if (match := _ATTEMPT.fullmatch(path.rsplit("/", 1)[-1]))
        )
        found = [self._read(f"{folder}/attempts/{number:03}.json", Attempt) for number in numbers]
        attempts = [one for one in found if one is not None]
        if attempts and attempts[-1].begin is None and not attempts[-1].ended_at:
            begin = self.attempt_begin(name, attempts[-1].number)
            attempts[-1] = msgspec.structs.replace(attempts[-1], begin=begin)
        actions = [
            self._read(f"{folder}/actions/{path.rsplit('/', 1)[-1]}", Action)
            for path in self._store.find(f"training-jobs/{name}/actions")
            if path.endswith(".json")
        ]
        return TrainingJobStatus(
            submitted=submitted,
            attempts=tuple(attempts),
            actions=tuple(sorted((one for one in actions if one is not None), key=lambda one: one.time)),
            cancellation=self._read(f"{folder}/cancel.json", Cancellation),
        )

    def write_attempt(self, name: str, attempt: Attempt) -> None:
        self._write(name, f"attempts/{attempt.number:03}.json", attempt)

    def attempt_begin(self, name: str, number: int) -> AttemptBegin | None:
        """Return how an attempt says that it began; None: it has not begun."""
        return self._read(f"{self._folder(name)}/attempts/{number:03}.begin.json", AttemptBegin)

    def begin_attempt(self, name: str, number: int, begin: AttemptBegin) -> bool:
        """Note that an attempt begins; return False if it has begun before."""
        return self._store.create_training_job(name, f"attempts/{number:03}.begin.json", msgspec.json.encode(begin))

    def attempt_end(self, name: str, number: int) -> AttemptEnd | None:
        """Return how an attempt says that it ended; None: it says nothing."""
        return self._read(f"{self._folder(name)}/attempts/{number:03}.end.json", AttemptEnd)

    def write_attempt_end(self, name: str, number: int, end: AttemptEnd) -> None:
        self._write(name, f"attempts/{number:03}.end.json", end)

    def write_action(self, name: str, action: Action) -> None:
        self._write(name, f"actions/{action.key}.json", action)

    def note_saves(self, name: str, number: int, host: str, noted: NotedSaves) -> None:
        """Note the newest saves of a node, in place of those before."""
        self._write(name, f"saves/{number:03}-{host}.json", noted)

    def noted_saves(self, name: str) -> list[bytes]:
        """Return the lines of all nodes of the last attempts; a note that cannot be read is none: the job goes on without it."""
        lines: list[bytes] = []
        for path in self._saves_of(name):
            with contextlib.suppress(TachoscopeError):
                noted = self._read(f"{self._folder(name)}/saves/{path.rsplit('/', 1)[-1]}", NotedSaves)
                lines += [line.encode() for line in noted.lines] if noted is not None else []
        return lines

    def forget_saves(self, name: str, number: int) -> None:
        """Remove what attempts noted more than `KEPT_SAVES` before this one."""
        old = [path for path in self._saves_of(name) if _attempt_of(path) < number - KEPT_SAVES]
        self._store.remove([f"{self._folder(name)}/saves/{path.rsplit('/', 1)[-1]}" for path in old])

    def _saves_of(self, name: str) -> list[str]:
        return [path for path in self._store.find(f"training-jobs/{name}/saves") if path.endswith(".json")]

    def cancel(self, name: str, cancellation: Cancellation) -> None:
        """Ask for the end of a job; its supervisor sees to it."""
        self._write(name, "cancel.json", cancellation)

    def _folder(self, name: str) -> str:
        return f"{self._store.root}/training-jobs/{check_job_name(name)}"

    def _write(self, name: str, key: str, document: msgspec.Struct) -> None:
        self._store.write_training_job(name, key, msgspec.json.encode(document))

    def _read(self, path: str, kind: type[_T]) -> _T | None:
        return read_document(self._store, path, kind)


def _attempt_of(path: str) -> int:
    number = path.rsplit("/", 1)[-1].partition("-")[0]
    return int(number) if number.isdecimal() else 0


def _check_owner(there: SubmittedJob, submitted: SubmittedJob) -> None:
    if submitted.submitted_by and submitted.submitted_by != there.submitted_by:
        raise TrainingJobConflictError(f"training job {there.job.name!r} was submitted by another", fix="choose another name")
