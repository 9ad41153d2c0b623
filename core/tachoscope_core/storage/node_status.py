"""What each node says of the jobs that run on it now: one small object a node, `nodes/<node>.json.gz`, which its agent writes again
every few seconds.

Records tell everything, but reach an object store minutes late: whether a job runs or hangs is known from these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import msgspec

from tachoscope_core.owner import Owner
from tachoscope_core.records.records import is_job_name
from tachoscope_core.storage.ledger_rows import RankRows
from tachoscope_core.storage.store import Store

MOST_SECONDS_BETWEEN = 30.0
"""An agent writes its object as often as it ships records, but at least as often as this."""


class RankStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rank of the newest attempt that its node knows. Times are Unix seconds by the node's clock.

    Attributes:
        step, step_time: the last step that it finished, and when; 0.0: none.
        usual_step_seconds: what a step took lately; 0.0: not known.
        phase: where it was after that, by its last heartbeat; empty: not known. record_time: of its last record of any kind.
        ended: `left`, `failed` or `killed`; empty: it runs.
    """

    rank: int
    writer: str
    pid: int = 0
    step: int = 0
    step_time: float = 0.0
    usual_step_seconds: float = 0.0
    phase: str = ""
    record_time: float = 0.0
    ended: str = ""


class HangStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """That who watches a job on the node says that it hangs, since its last step at `since`, Unix seconds.

    Attributes:
        failed_rank: the rank that the others wait for; -1: not known. why: what it was judged by.
        all_seen: all ranks of the job run on this node.
    """

    since: float
    failed_rank: int = -1
    why: str = ""
    all_seen: bool = False


class JobStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job's part on a node.

    Attributes:
        owner: whose it is; None: not known. attempt: the newest that the node knows.
        ended: `completed` or `failed`, as who launched it said; empty: nobody did.
        began: when the agent started to count the job, Unix seconds.
        state_seconds: by ledger state since then, of all ranks and attempts: the agent's counters. counted: these ranks.
        events: number of records since then that are not measurements, such as of a checkpoint or a failure.
        rows: of the last two minutes, see `ledger_rows`.
        hang_limit_seconds: how long its ranks here may be without a step; 0.0: not known. hang: that it is in; None: none is known.
        scheduler_job: id of the Slurm job that it runs in; empty: none, or not known.
    """

    job: str
    owner: Owner | None = None
    attempt: int = 0
    world_size: int = 0
    ended: str = ""
    ranks: list[RankStatus] = []
    began: int = 0
    state_seconds: dict[str, float] = {}
    events: int = 0
    rows: list[RankRows] = []
    counted: list[int] = []
    hang_limit_seconds: float = 0.0
    hang: HangStatus | None = None
    scheduler_job: str = ""


class XidStatus(msgspec.Struct, frozen=True):
    """An Xid error that makes a GPU unhealthy until it is reset. `gpu`: its index, else its UUID. `time`: of the last one."""

    xid: str
    gpu: str
    time: float


class NodeStatus(msgspec.Struct, frozen=True):
    """A node at `time`, Unix seconds by its own clock.

    Attributes:
        every_seconds: between two objects. flush_seconds: how late its records may be in the store.
        booted_at: Unix seconds; 0.0: not known. xids: of GPUs that were not reset since.
    """

    node: str
    time: float
    every_seconds: float
    flush_seconds: float
    jobs: list[JobStatus] = []
    booted_at: float = 0.0
    xids: list[XidStatus] = []


def every_seconds(flush_seconds: float) -> float:
    """Return how often an agent writes its object that ships records every `flush_seconds`."""
    return min(max(flush_seconds, 1.0), MOST_SECONDS_BETWEEN)


def write(store: Store, status: NodeStatus) -> None:
    """Write a node's object in place of the one before. Raises TachoscopeError if the store does not take it."""
    store.write_node(status.node, msgspec.json.encode(status))


@dataclass(frozen=True, slots=True)
class NodesRead:
    """The nodes that wrote lately, and of those whose object cannot be read, why not."""

    nodes: list[NodeStatus]
    faults: list[str]


def read_all(
    store: Store, *, since: float, owner_of: Callable[[str], Owner | None], nodes: Collection[str] | None = None
) -> NodesRead:
    """Return what the nodes say that wrote after `since`, Unix seconds by the store's clock.

    Left out is what they say of a job that belongs to another than the one they know; and in a directory that several users write
    to, what a user says of others' jobs.

    Args:
        owner_of: returns the owner of a job in the store; None: none yet. nodes: names of the folders to read; None: all.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    read = NodesRead([], [])
    for path, uid, document in store.nodes(since=since, only=nodes):
        if isinstance(document, str):
            read.faults.append(document)
            continue
        try:
            status = msgspec.json.decode(document, type=NodeStatus)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            read.faults.append(f"{path} is not what an agent writes: {error}")
            continue
        jobs = [job for job in status.jobs if is_job_name(job.job) and _may_say(uid, job, owner_of(job.job))]
        status = msgspec.structs.replace(status, jobs=jobs)
        # A user's word on a node could take it from others.
        read.nodes.append(status if uid is None else msgspec.structs.replace(status, booted_at=0.0, xids=[]))
    return read


def _may_say(uid: int | None, job: JobStatus, owner: Owner | None) -> bool:
    """Return whether what is said is about the owner's job. `uid`: of who says it; None: it is trusted."""
    owner = owner or job.owner
    return owner is None or (job.owner in {None, owner} and uid in {None, owner.uid})
