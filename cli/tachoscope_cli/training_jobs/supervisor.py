"""Brings a training job back until it is done: submits an attempt, judges its end, and submits the next.

All it knows is in the store, so it may end at any time; another one goes on. One at a time acts for a job, see `lock`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from tachoscope_analyzers.attempts.process_ends import process_ends
from tachoscope_analyzers.failures.report import failures
from tachoscope_analyzers.records.load import from_store
from tachoscope_cli.training_jobs import attempt as attempt_process
from tachoscope_cli.training_jobs.bad_shards import BadShard, action_of, bad_shard, listed_shards, quarantine
from tachoscope_cli.training_jobs.engine import AttemptRequest, Engine, EngineState, TooFewHostsError
from tachoscope_cli.training_jobs.policy import Ended, judge
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.submitted_jobs import ENDED, Attempt, SubmittedJob, TrainingJobs, TrainingJobStatus
from tachoscope_core.report.failures import Failure
from tachoscope_core.storage.store import Store

LOOK_SECONDS = 2.0
"""Between two looks at an attempt."""
FAILED_SECONDS = 10.0
"""Before the next look if the engine or the store did not answer."""
SILENT_SECONDS = 60.0
"""Between two lines about an engine or store that does not answer."""


def what_happened(store: Store, name: str, attempt: Attempt) -> tuple[Failure | None, int, BadShard | None]:
    """Return the first failure of an attempt, the highest step of the job, and the data shard behind the failure."""
    if name not in store.jobs():
        return None, 0, None
    job = from_store(store, name, ends_only=True)
    ends = process_ends(job)
    found = [one for one in failures(job, ends) if one.time >= attempt.intended_at]
    failure = found[-1] if found else None
    shard = bad_shard(job, failure, listed_shards(store, name)) if job.shard_failures else None
    return failure, max((run.highest for run in ends.attempts), default=0), shard


def request_of(store: Store, submitted: SubmittedJob, attempt: Attempt, directory: Path, *, lock: int) -> AttemptRequest:
    """Return what is asked of the engine for an attempt."""
    job = submitted.job
    return AttemptRequest(
        job=job,
        number=attempt.number,
        label=f"tachoscope-{job.name}-{submitted.id}-{attempt.number}",
        command=attempt_process.words(store.url, job, attempt.number),
        excluded_hosts=attempt.excluded_hosts,
        log=directory / f"{job.name}-{attempt.number:03}.log",
        lock=lock,
    )


class Supervisor:
    """Supervises one job.

    Args:
        directory: of this user on this machine, for logs and locks. log: gets a line for each thing that it does.
        lock: descriptor of the job's lock, see `held`.
    """

    def __init__(self, store: Store, name: str, engine: Engine, directory: Path, lock: int, log: Callable[[str], None]) -> None:
        self._store = store
        self._jobs = TrainingJobs(store)
        self._name = name
        self._engine = engine
        self._directory = directory
        self._lock = lock
        self._log = log
        self._silent_until = 0.0
        self._cancelled_id = ""
        self._actions_seen: set[str] | None = None

    def run(self) -> TrainingJobStatus:
        """Go on until the job has ended, whatever does not answer meanwhile; return what became of it."""
        while True:
            try:
                status = self.look()
            except (TachoscopeError, OSError) as error:
                if time.monotonic() >= self._silent_until:
                    self._log(f"{error}; trying again")
                    self._silent_until = time.monotonic() + SILENT_SECONDS
                time.sleep(FAILED_SECONDS)
            else:
                if status.state in ENDED:
                    return status
            time.sleep(LOOK_SECONDS)

    def look(self) -> TrainingJobStatus:
        """Look once, and do what is due."""
        status = self._jobs.status(self._name)
        last = status.attempts[-1] if status.attempts else None
        self._say_actions(status)
        if status.state in ENDED:
            return status
        if last is None or last.decision == "restart":
            if last is None or time.time() >= last.ended_at + last.next_delay_seconds:
                self._submit(status, self._next(last))
        elif not last.engine_id:
            self._submit(status, last)
        else:
            self._watch(status, last)
        return self._jobs.status(self._name)

    def _next(self, last: Attempt | None) -> Attempt:
        if last is None:
            return Attempt(number=0, intended_at=time.time())
        return Attempt(number=last.number + 1, intended_at=time.time(), excluded_hosts=last.next_excluded_hosts)

    def _submit(self, status: TrainingJobStatus, attempt: Attempt) -> None:
        request = request_of(self._store, status.submitted, attempt, self._directory, lock=self._lock)
        if attempt not in status.attempts:
            self._jobs.write_attempt(self._name, attempt)
            found = None
        else:
            found = self._engine.find(request.label)
        if found is None and status.cancellation is not None:
            self._write(attempt, decision="cancelled", reason="by tachoscope cancel", ended_at=time.time())
            return
        if found is None:
            try:
                found = self._engine.submit(request)
            except TooFewHostsError:
                self._log(f"too few nodes without {', '.join(attempt.excluded_hosts)}: none is left out")
                attempt = msgspec.structs.replace(attempt, excluded_hosts=())
                found = self._engine.submit(replace(request, excluded_hosts=()))
            output = self._engine.output(found, request.log)
            without = f", without {', '.join(attempt.excluded_hosts)}" if attempt.excluded_hosts else ""
            self._log(f"attempt {attempt.number} is submitted as {found}{without}; its output: {output}")
        self._write(attempt, engine_id=found, log=self._engine.output(found, request.log))

    def _watch(self, status: TrainingJobStatus, attempt: Attempt) -> None:
        state = self._engine.state(attempt.engine_id)
        requeued = state.state == "queued" and attempt.begin is not None
        if requeued:  # an attempt begins once: another one follows
            state = EngineState("ended", state.reason or "it was put back into the queue", by_engine=True)
        if state.state != "ended":
            self._go_on(status, attempt, state)
            return
        end = self._jobs.attempt_end(self._name, attempt.number)
        failure, highest_step, shard = what_happened(self._store, self._name, attempt)
        quarantined = self._quarantine(status, attempt, shard) if shard is not None else ""
        ended = Ended(end=end, state=state, failure=failure, highest_step=highest_step, quarantined=quarantined)
        policy, cancelled = status.submitted.job.restart, status.cancellation is not None
        verdict = judge(policy, status.attempts[:-1], attempt, ended, cancelled=cancelled)
        self._write(
            attempt,
            ended_at=time.time(),
            end=end,
            failure=failure,
            highest_step=highest_step,
            ended_by_engine=state.by_engine,
            decision=verdict.decision,
            reason=verdict.reason,
            next_excluded_hosts=verdict.excluded_hosts,
            next_delay_seconds=verdict.delay_seconds,
        )
        if requeued:
            self._engine.cancel(attempt.engine_id)
        later = f" in {verdict.delay_seconds:.0f} s" if verdict.delay_seconds else ""
        self._log(f"attempt {attempt.number} ended: {verdict.reason}; {verdict.decision}{later}")

    def _go_on(self, status: TrainingJobStatus, attempt: Attempt, state: EngineState) -> None:
        if status.cancellation is not None and self._cancelled_id != attempt.engine_id:
            self._engine.cancel(attempt.engine_id)
            self._cancelled_id = attempt.engine_id
        elif state.state == "running" and not attempt.hosts and (hosts := self._engine.hosts(attempt.engine_id)):
            self._write(attempt, hosts=dict(hosts))

    def _quarantine(self, status: TrainingJobStatus, attempt: Attempt, shard: BadShard) -> str:
        """Quarantine a shard if that is configured; return its name, or nothing if the next attempt will not skip it."""
        action = action_of(status, attempt.number, shard, time.time())
        if action is None:
            return ""
        if action.applied:
            quarantine(self._store, self._name, shard, action.time)
        self._jobs.write_action(self._name, action)
        return shard.name if action.applied else ""

    def _say_actions(self, status: TrainingJobStatus) -> None:
        """Log each new action, also those that attempts took."""
        keys = {one.key for one in status.actions}
        for one in status.actions:
            if self._actions_seen is not None and one.key not in self._actions_seen:
                self._log(f"attempt {one.attempt}: {one.text}" + (f"; undo: {one.undo}" if one.undo else ""))
        self._actions_seen = keys

    def _write(self, attempt: Attempt, **changes: object) -> None:
        self._jobs.write_attempt(self._name, msgspec.structs.replace(attempt, **changes))
