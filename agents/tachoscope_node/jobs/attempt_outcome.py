"""How attempts of jobs ended and whose doing that was, as far as the node of rank 0 can know.

An attempt has ended when nobody watches it any longer and no process of it runs on the node. Of the cause little can be known for
sure, and nothing else is said: `user` where the user interrupted it, or the process that failed first, all being on this node,
raised an error that only code raises; `infra` where the node itself was at fault. A process that was killed when memory ran out
tells neither: the job itself may have used it up, and the kernel counts the kills of a container's own limit as the host's.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tachoscope_core.metrics.training import ENDS
from tachoscope_core.records import records
from tachoscope_node.jobs.state import AttemptEnding, Job, KnownHang, Rank

WAIT_SECONDS = 30.0
"""So long a failure may wait for its cause: the kernel log and the driver are asked once in a while."""
CODE_ERRORS = frozenset(
    {
        "AssertionError",
        "AttributeError",
        "ImportError",
        "IndentationError",
        "IndexError",
        "KeyError",
        "ModuleNotFoundError",
        "NameError",
        "NotImplementedError",
        "RecursionError",
        "SyntaxError",
        "TypeError",
        "UnboundLocalError",
        "UnicodeDecodeError",
        "UnicodeEncodeError",
        "ValueError",
        "ZeroDivisionError",
    }
)
"""What neither a device, a network nor a disk makes Python raise. RuntimeError is none: torch raises it for all three."""


class EndedAttempt(msgspec.Struct):
    """An attempt that ended, and is to be counted.

    Attributes:
        at: when. since: when it began, or finished its last step before; seconds of the monotonic clock.
        gpus: UUIDs that its ranks on the node named.
    """

    at: float
    since: float
    gpus: list[str]
    result: str
    cause: str


def judged(job: Job, record: records.Record) -> None:
    """Take what who watches a job says of its processes."""
    match record:
        case records.WorkerFailed():
            job.ending.process_failed(record.failed_attempt, record.reason)
        case records.WorkerHung():
            job.hangs += 1
            job.hang = KnownHang(job.attempt, record.since_time, record.step, record.failed_rank, record.why[:1024])
        case records.PreemptionNotice():
            job.ending.told = True


def close(job: Job, at: float) -> EndedAttempt | None:
    """End a job's attempt; return it if it counts here: on the node of its rank 0 only, so that each counts once."""
    ending, job.ending = job.ending, AttemptEnding()
    ranks = [rank for rank in job.ranks.values() if rank.attempt == job.attempt]
    if all(rank.rank for rank in ranks):
        return None
    result, cause = _verdict(ending, ranks, job.attempt)
    return EndedAttempt(at, ending.since, sorted({rank.gpu_uuid for rank in ranks if rank.gpu_uuid}), result, cause)


def _verdict(ending: AttemptEnding, ranks: list[Rank], attempt: int) -> tuple[str, str]:
    """Return result and cause, before the node is asked what it knows of itself."""
    status = ending.status or ("completed" if all(rank.ended == "left" for rank in ranks) else "failed")
    if ending.told:
        return "cancelled", "unknown"
    if status == "completed":
        return "completed", "none"
    if ending.reason.startswith(records.INTERRUPTED):
        return "cancelled", "user"
    is_whole = len(ranks) >= max(rank.world_size for rank in ranks)
    is_code = ending.failed_attempt == attempt and ending.failure in CODE_ERRORS
    return "failed", "user" if is_whole and is_code else "unknown"


class Finished(msgspec.Struct):
    """Attempts that ended, counted by result and cause; `waiting` are those whose cause may still become known."""

    counts: dict[str, dict[str, int]] = msgspec.field(
        default_factory=lambda: {result: dict.fromkeys(causes, 0) for result, causes in ENDS.items()}
    )
    waiting: list[EndedAttempt] = []

    def count(self, now: float, by_host: Callable[[EndedAttempt], bool]) -> bool:
        """Count those of which no more will become known; say whether there were any.

        Args:
            by_host: says whether the node itself was at fault.
        """
        waiting, self.waiting = self.waiting, []
        for ended in waiting:
            cause = "infra" if ended.cause == "unknown" and by_host(ended) else ended.cause
            if (ended.result, cause) == ("failed", "unknown") and now - ended.at < WAIT_SECONDS:
                self.waiting.append(ended)
            else:
                self.counts[ended.result][cause] += 1
        return len(self.waiting) < len(waiting)
