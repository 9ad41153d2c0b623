"""What is told of a job that is watched: how it stands, its workers on all hosts, its checkpoints, and its report."""

from __future__ import annotations

import msgspec

from tachoscope_core.report.failures import Failure
from tachoscope_core.report.report import Finding, Report
from tachoscope_watch.profile_view import Profile


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the newest attempt.

    Attributes:
        heartbeat: Unix seconds of its last record of any kind. step: the last that it finished. phase: where it is, by its last
            heartbeat; empty: not known. ended: how it ended; empty: it has not.
    """

    rank: int
    host: str
    pid: int
    heartbeat: float
    step: int
    phase: str = ""
    ended: str = ""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint as one rank saved it."""

    rank: int
    step: int
    time: float
    bytes: int
    blocking_seconds: float
    reference: str = ""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job at one look.

    Attributes:
        namespace: Kubernetes namespace of its owner; empty outside of Kubernetes.
        looked: Unix seconds. state: `hung`, or as `tachoscope store ls` says it: running, completed, failed, unknown.
        attempts: up to the newest, numbered from 0; at most the last hundred. world_size: 0: not known.
        state_seconds: rank-seconds by ledger state, as the counters of the job's agents have them, where one is gone as they were
            last; empty: no agent says.
        hang: what is known of it while the job hangs; it is the report's first finding, too, where there is one. hang_since: Unix
            seconds of its last step; 0.0: it does not hang.
        failure: the first failure of a job that failed, with the policy for another attempt; None: it did not, or it is not known.
        profiles: all that were requested in the last hour.
        report: on the last minutes; None: it cannot be judged, and `reason` says why. judged: Unix seconds at which it was made;
            0.0: there is none. unwritten: why it is not in the store.
        put_off: in how many cycles running a new report was due and the watch had no time for it; 0: it is on the newest.
    """

    job: str
    namespace: str = ""
    looked: float
    state: str
    attempts: list[int]
    world_size: int
    workers: list[Worker]
    state_seconds: dict[str, float] = {}
    hang: Finding | None = None
    hang_since: float = 0.0
    failure: Failure | None = None
    checkpoints: list[Checkpoint] = []
    profiles: list[Profile] = []
    report: Report | None = None
    judged: float = 0.0
    reason: str = ""
    unwritten: str = ""
    put_off: int = 0
