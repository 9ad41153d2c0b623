"""The status objects of nodes: each says what it knows of its jobs, and nothing of the jobs of others."""

import gzip
import os
from pathlib import Path

import pytest

from tachoscope_core.owner import Owner
from tachoscope_core.storage.node_status import JobStatus, NodesRead, NodeStatus, RankStatus, read_all, write
from tachoscope_core.storage.store import Store

ALICE, MALLORY = Owner(4001), Owner(4002)


def said(store: Store, node: str, job: str, owner: Owner | None) -> Path:
    """Have a node say that it has rank 0 of a job; return the object."""
    write(store, NodeStatus(node, 1.8e9, 30.0, 300.0, [JobStatus(job, owner, 0, 1, "", [RankStatus(0, "writer")])]))
    return Path(store.root) / "nodes" / f"{node}.json.gz"


def read(store: Store, owner: Owner | None, *, since: float = 0.0) -> NodesRead:
    return read_all(store, since=since, owner_of=lambda _: owner)


def jobs(found: NodesRead) -> dict[str, list[str]]:
    return {node.node: [job.job for job in node.jobs] for node in found.nodes}


def test_what_is_written_is_read_as_it_was(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    said(store, "one", "job", ALICE)
    (node,) = read(store, ALICE).nodes

    assert (node.node, node.time, node.every_seconds, node.flush_seconds) == ("one", 1.8e9, 30.0, 300.0)
    assert node.jobs == [JobStatus("job", ALICE, 0, 1, "", [RankStatus(0, "writer")])]


def test_a_job_of_the_same_name_that_is_anothers_is_left_out(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    said(store, "good", "job", ALICE)
    said(store, "bad", "job", MALLORY)

    assert jobs(read(store, ALICE)) == {"bad": [], "good": ["job"]}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of other users")
@pytest.mark.parametrize("claimed", [ALICE, MALLORY, None])
def test_what_a_user_writes_into_a_directory_counts_for_that_users_jobs_only(tmp_path: Path, claimed: Owner | None) -> None:
    store = Store(str(tmp_path))
    os.chown(said(store, "forged", "job", claimed), MALLORY.uid, MALLORY.uid)
    os.chown(said(store, "own", "job", ALICE), ALICE.uid, ALICE.uid)
    said(store, "agent of root", "job", ALICE)

    assert jobs(read(store, ALICE)) == {"agent of root": ["job"], "forged": [], "own": ["job"]}


def test_an_object_that_is_not_a_status_is_named_and_costs_the_others_nothing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    said(store, "good", "job", ALICE)
    for name, content in {"cut": gzip.compress(b"{}")[:-4], "text": b"text", "other": gzip.compress(b'{"node": 1}')}.items():
        (tmp_path / "nodes" / f"{name}.json.gz").write_bytes(content)
    found = read(store, ALICE)

    assert jobs(found) == {"good": ["job"]}
    assert sorted(
        name for name in ("cut", "text", "other", "good") if any(f"{name}.json.gz" in fault for fault in found.faults)
    ) == [
        "cut",
        "other",
        "text",
    ]


def test_a_node_that_wrote_nothing_lately_is_not_read(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    os.utime(said(store, "gone", "job", ALICE), (1000.0, 1000.0))

    assert jobs(read(store, ALICE, since=1001.0)) == {}
    assert jobs(read(store, ALICE, since=999.0)) == {"gone": ["job"]}
