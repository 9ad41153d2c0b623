"""How processes of a job end, hang and start again, and how the job ends."""

from __future__ import annotations

from typing import Literal

from tachoscope_core.records.base import LAUNCHER_RANK, Count, ExitCode, Name, Rank, Record, Text, UnixSeconds


class WorkerFailed(Record, frozen=True, kw_only=True, tag="WorkerFailed"):
    """A process of the job is gone without having ended in order; written by who watches it (launcher, node agent), at `time`.

    Attributes:
        failed_rank, failed_writer: whose process it was.
        failed_attempt: its attempt. failed_pid: its process id.
        gone_time: Unix seconds at which it was seen gone. seen_time: at which it was last seen alive.
        step: the last step that it finished.
    """

    reason: Text
    exit_code: ExitCode = 0
    failed_rank: Rank = LAUNCHER_RANK
    failed_writer: Name = ""
    failed_attempt: Count = 0
    failed_pid: Count = 0
    gone_time: UnixSeconds = 0.0
    seen_time: UnixSeconds = 0.0
    step: Count = 0


class WorkerHung(Record, frozen=True, kw_only=True, tag="WorkerHung"):
    """No rank of the node finished a step for much longer than a step takes; written by who watches, once for each hang.

    Attributes:
        failed_rank, failed_writer: the rank that is stuck, as far as it can be told (the others wait); -1: it cannot.
        since_time: Unix seconds of the last finished step. step: its number within the process.
        why: what it was judged by.
    """

    failed_rank: Rank = LAUNCHER_RANK
    failed_writer: Name = ""
    since_time: UnixSeconds
    step: Count = 0
    why: Text = ""


class WorkerRestarted(Record, frozen=True, kw_only=True, tag="WorkerRestarted"):
    """A process of the job was started again; written by who watches it.

    Attributes:
        restarted_rank, restarted_attempt: whose process it is, and its attempt.
    """

    reason: Text = ""
    restarted_rank: Rank = LAUNCHER_RANK
    restarted_attempt: Count = 0


class PreemptionNotice(Record, frozen=True, kw_only=True, tag="PreemptionNotice"):
    """Somebody said that the job's processes on this host will be ended; written by the launcher or the node agent at `time`.

    Attributes:
        source: who said so: `sigterm`, `aws`, `gcp`, `azure`. deadline: Unix seconds of the announced end; 0: not said.
    """

    source: Name
    deadline: UnixSeconds = 0.0


class JobEnded(Record, frozen=True, kw_only=True, tag="JobEnded"):
    """A process of the job ended in order, or the launcher saw the command end.

    Attributes:
        status: `completed`, `failed`, or `left` (the process ended and cannot say how; the launcher's word decides).
        dropped_total: records that this process could not write.
        lineage: what became known after the process's `JobStarted`, as there.
        loaded: of the launcher: what its processes loaded, by `spool.LOADED`; None: not known.
    """

    status: Literal["completed", "failed", "left"]
    reason: Text = ""
    exit_code: ExitCode | None = None
    steps: Count = 0
    dropped_total: Count = 0
    lineage: dict[Name, Text] = {}
    loaded: list[Name] | None = None
