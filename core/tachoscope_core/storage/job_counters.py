"""What the agents counted of one job: the counters that each node told last, by its status or beside its ledger rows.

A node tells them in its status until five minutes after the job ended, and with its ledger rows for as long as the store has these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tachoscope_core.storage import ledger_rows, node_status
from tachoscope_core.storage.store import Store, host_folder


@dataclass(frozen=True, slots=True)
class NodeCounters:
    """The counters of a job on a node.

    Attributes:
        began: Unix seconds since which they count. time: at which they were told. ranks: that are counted.
        state_seconds: rank-seconds by ledger state.
    """

    node: str
    began: int
    time: float
    ranks: frozenset[int]
    state_seconds: dict[str, float]


def of_job(store: Store, job: str, nodes: Collection[str]) -> list[NodeCounters]:
    """Return the newest counters of each node, and of each time that its agent began to count anew.

    Args:
        nodes: that shipped records of the job; others are known by their ledger rows.

    Raises:
        TachoscopeError: the store cannot be read.
        BrokenObjectError: an object is not what an agent writes.
    """
    root = f"{store.root}/jobs/{job}/ledger"
    folders = {host_folder(node) for node in nodes} | {path.removeprefix(f"{root}/host=") for path in store.folders(root)}
    newest: dict[tuple[str, int], NodeCounters] = {}
    for one in (*_beside_rows(store, job), *_in_status(store, job, folders)):
        known = newest.get((one.node, one.began))
        if known is None or known.time <= one.time:
            newest[one.node, one.began] = one
    return [newest[key] for key in sorted(newest)]


def _beside_rows(store: Store, job: str) -> Iterator[NodeCounters]:
    """Yield what the last object of each node and begin says."""
    for one in ledger_rows.last_objects(store, job):
        yield NodeCounters(one.node, one.began, one.time, frozenset(one.counted), one.state_seconds)


def _in_status(store: Store, job: str, folders: Collection[str]) -> Iterator[NodeCounters]:
    if not folders:
        return
    for node in node_status.read_all(store, since=0.0, owner_of=store.owner, nodes=folders).nodes:
        for part in node.jobs:
            if part.job == job and part.state_seconds:
                yield NodeCounters(node.node, part.began, node.time, frozenset(part.counted), part.state_seconds)
