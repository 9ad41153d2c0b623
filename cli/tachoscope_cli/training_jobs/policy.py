"""What follows from the end of an attempt: another attempt, where and when, or the end of the job. Decided from documents alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tachoscope_cli.training_jobs.engine import EngineState
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.jobs.submitted_jobs import Attempt, AttemptEnd, Decision
from tachoscope_core.jobs.training_job import RestartPolicy
from tachoscope_core.report.failures import Failure, suspect_host
from tachoscope_show.report import failure_words

MOST_WITHOUT_PROGRESS = 3
"""Attempts in a row that ended by themselves without a new step: the next would most likely, too."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows, why, from which hosts the next attempt keeps away, and how long it waits."""

    decision: Decision
    reason: str
    excluded_hosts: tuple[str, ...] = ()
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An attempt that has ended.

    Attributes:
        end: as it said itself; None: it was killed. state: as the engine says. failure: None: not known.
        highest_step: of the whole job, until this attempt's end. quarantined: the data shard behind the failure, which the next
            attempt is told to skip; empty: there is none.
    """

    end: AttemptEnd | None
    state: EngineState
    failure: Failure | None
    highest_step: int
    quarantined: str = ""


def judge(policy: RestartPolicy, before: Sequence[Attempt], this: Attempt, ended: Ended, *, cancelled: bool) -> Verdict:
    """Judge the end of an attempt. before: the attempts that were judged; cancelled: the job's owner wants its end."""
    if ended.end is not None and ended.end.exit_code == 0:
        return Verdict("completed", "the command ended with exit code 0")
    if cancelled:
        return Verdict("cancelled", "by tachoscope cancel")
    if ended.state.cancelled:
        return Verdict("cancelled", "in the engine, not by tachoscope")
    what = _what_happened(ended)
    if ended.end is not None and ended.end.refused:
        return Verdict("failed", ended.end.refused)
    if ended.failure is not None and ended.failure.policy == "stop" and not (ended.state.by_engine or ended.quarantined):
        return Verdict("failed", f"{what}: the same as before, with no new step since")
    if ended.end is not None and ended.end.exit_code in {ExitCode.NOT_EXECUTABLE, ExitCode.NO_SUCH_COMMAND} and not ended.failure:
        return Verdict("failed", f"the command could not be started (exit code {ended.end.exit_code}): see the attempt's output")
    tries = 0 if ended.quarantined else _without_progress([*before, this], ended)
    if tries >= MOST_WITHOUT_PROGRESS:
        return Verdict("failed", f"{what}; {tries} attempts in a row ended without a new step")
    if this.number + 1 >= policy.most_attempts:
        return Verdict("failed", f"{what}; it was the last of {policy.most_attempts} attempts")
    delay = min(policy.delay_seconds * 2 ** (tries - 1), policy.most_delay_seconds) if tries else 0.0
    return Verdict("restart", what, _excluded(before, this, ended), delay)


def _what_happened(ended: Ended) -> str:
    failure = ended.failure
    if ended.state.by_engine:
        lost = f": {', '.join(ended.state.lost_hosts)}" if ended.state.lost_hosts else ""
        return f"the engine ended it: {ended.state.reason}{lost}"
    if failure is not None:
        place = failure_words.where(failure)
        shard = f"; data shard {ended.quarantined} is quarantined" if ended.quarantined else ""
        return f"{failure_words.who(failure)} {failure_words.how(failure)}" + (f", at {place}" if place else "") + shard
    if ended.end is None:
        engine = f" ({ended.state.reason})" if ended.state.reason else ""
        return f"it ended without reporting an exit code, as a killed process does{engine}"
    return f"exit code {ended.end.exit_code}"


def _without_progress(attempts: Sequence[Attempt], ended: Ended) -> int:
    """Return how many attempts in a row, this one last, ended by themselves with no step that is new."""
    if ended.state.by_engine:
        return 0
    steps = [*(one.highest_step for one in attempts[:-1]), ended.highest_step]
    count = 0
    for place in range(len(steps) - 1, -1, -1):
        if steps[place] > (steps[place - 1] if place else 0) or attempts[place].ended_by_engine:
            break
        count += 1
    return count


def _excluded(before: Sequence[Attempt], this: Attempt, ended: Ended) -> tuple[str, ...]:
    """Return from which hosts the next attempt keeps away: lost ones at once, others when a second attempt failed there."""
    hosts = [*this.excluded_hosts, *ended.state.lost_hosts]
    failure = ended.failure
    host = suspect_host(failure, by_engine=ended.state.by_engine, names=this.hosts)
    there = {suspect_host(one.failure, by_engine=one.ended_by_engine, names=one.hosts) for one in before}
    if failure is not None and host and (failure.cause == "host_lost" or host in there):
        hosts.append(host)
    return tuple(dict.fromkeys(hosts))
