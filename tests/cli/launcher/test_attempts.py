"""Which attempt a run is: nodes of one job that begin one after the other are of one attempt, and restarts are of the next."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tachoscope_cli.launcher import attempt_number as attempts
from tachoscope_cli.launcher.run import _joins
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store

NOW = 1_800_000_000.0


class Node:
    """A run on a host, and what it has shipped."""

    def __init__(self, store: Store, host: str, attempt: int, began: float = NOW) -> None:
        self.store, self.host, self.attempt, self.offset, self.seq = store, host, attempt, 0, 0
        self.writer = str(uuid.uuid4())
        self.write(records.JobStarted, began, world_size=0, pid=1)

    def write(self, kind: type[records.Record], at: float, **fields: object) -> None:
        self.seq += 1
        envelope = {"job": "pretrain", "attempt": self.attempt, "writer": self.writer, "seq": self.seq, "host": self.host}
        place = {"rank": records.LAUNCHER_RANK, "local_rank": -1, "time": at, "monotonic_ns": 1}
        line = records.encode(kind(**envelope, **place, **fields))  # type: ignore[arg-type]
        where = {"host": self.host, "writer": self.writer, "attempt": self.attempt, "offset": self.offset, "time": at}
        self.store.write("pretrain", lines=line, **where)  # type: ignore[arg-type]
        self.offset += len(line)

    def ended(self, at: float) -> None:
        self.write(records.JobEnded, at, status="failed", exit_code=1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def number(store: Store, host: str, after: float = 6.0, *, joins: bool = True) -> int:
    return attempts.number(store, "pretrain", host=host, joins=joins, now=NOW + after)


def test_the_first_run_is_attempt_0(store: Store) -> None:
    assert number(store, "node-0") == 0


def test_a_second_node_that_begins_later_is_of_the_same_attempt(store: Store) -> None:
    Node(store, "node-0", 0)
    Node(store, "node/2", 0)  # a name that folders cannot have

    assert number(store, "node-1") == 0
    assert number(store, "node-1", joins=False) == 1, "a job of one node that was started again"
    assert number(store, "node-0") == 1, "this host has had its part"
    assert number(store, "node/2") == 1


def test_a_node_that_comes_after_ten_minutes_begins_another_attempt(store: Store) -> None:
    Node(store, "node-0", 0)

    assert number(store, "node-1", attempts.JOIN_SECONDS - 1) == 0
    assert number(store, "node-1", attempts.JOIN_SECONDS + 1) == 1


def test_after_a_crash_the_nodes_join_the_next_attempt_whoever_of_them_is_first(store: Store) -> None:
    for host in ("node-0", "node-1"):
        Node(store, host, 0).ended(NOW + 60)

    assert number(store, "node-2", 70) == 1, "a spare node is not of the attempt that ended"
    Node(store, "node-2", 1, NOW + 70)
    assert number(store, "node-0", 80) == 1
    Node(store, "node-0", 1, NOW + 80)
    assert number(store, "node-2", 90) == 2


def test_restarts_by_torchrun_count_on_and_a_node_that_joins_is_of_its_launchers_attempt(store: Store) -> None:
    Node(store, "node-0", 0)
    rank = str(uuid.uuid4())
    store.write("pretrain", host="node-0", writer=rank, attempt=2, offset=0, time=NOW + 30, lines=b"{}\n")

    assert number(store, "node-1", 40) == 0, "it counts torchrun's restarts itself"
    assert number(store, "node-0", 40) == 3


@pytest.mark.parametrize(
    ("command", "environ", "joins"),
    [
        ("torchrun --nnodes 2 train.py", {}, True),
        ("torchrun --nnodes=1:4 train.py", {}, True),
        ("torchrun train.py", {"PET_NNODES": "2"}, True),
        ("python train.py", {"JOB_COMPLETION_INDEX": "1"}, True),
        ("python train.py", {"SLURM_NNODES": "4"}, True),
        ("torchrun --nnodes 1 train.py", {"PET_NNODES": "1"}, False),
        ("python train.py", {}, False),
    ],
)
def test_a_run_of_one_node_of_several_is_known_by_command_scheduler_or_operator(
    command: str, environ: dict[str, str], joins: bool
) -> None:
    assert _joins(command.split(), environ) is joins
