"""What the probe writes of collectives: running sums, and those of real processes."""

import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from helpers import records_of, run_watched
from once import made_once
from tachoscope.training.collectives import MAX_KEYS, Collectives, Key, size_class
from tachoscope_analyzers.records.load import JobRecords


def test_what_is_yielded_is_what_the_sums_grew_by() -> None:
    sums = Collectives()
    key = Key("send", "<=64KiB", "", 2, 1)
    sums.add(key, count=1, size_bytes=10, nanoseconds=2_000_000_000)
    first = list(sums.new_sums())
    sums.add(key, count=2, size_bytes=5, nanoseconds=1_000_000_000)

    assert first == [{**key._asdict(), "count": 1, "bytes": 10, "seconds": 2.0}]
    assert list(sums.new_sums()) == [{**key._asdict(), "count": 2, "bytes": 5, "seconds": 1.0}]
    assert list(sums.new_sums()) == []


def test_there_are_never_more_sums_than_planned_and_nothing_is_lost() -> None:
    sums = Collectives()
    for peer in range(1000):
        sums.add(Key("send", "<=64KiB", "", 1000, peer), count=1)
    rows = list(sums.new_sums())

    assert len(rows) <= MAX_KEYS + 1
    assert sum(row["count"] for row in rows) == 1000


def test_size_classes_are_at_most_four() -> None:
    assert [size_class(size) for size in (0, 64 << 10, (64 << 10) + 1, 1 << 20, 16 << 20, 1 << 30)] == [
        "<=64KiB",
        "<=64KiB",
        "<=1MiB",
        "<=1MiB",
        "<=16MiB",
        ">16MiB",
    ]


EXCHANGES = """
import sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

def main(rank):
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=3)
    pair = dist.new_group([0, 1])
    model = DistributedDataParallel(torch.nn.Linear(100, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    small, large = torch.ones(10), torch.ones(50_000)
    for step in range(7):
        model(torch.rand(4, 100)).sum().backward()
        optimizer.step()
        dist.all_reduce(large)
        work = dist.all_reduce(small, async_op=True)
        work.wait()
        if rank == 0:
            time.sleep(0.2)  # longer than the others take to come, also where the cores are busy
            dist.send(large, 1)
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, large, 2), dist.P2POp(dist.irecv, small, 2)])
            [work.wait() for work in works]
        elif rank == 1:
            assert dist.recv(large) == 0
        else:
            dist.isend(small, 0).wait()
            dist.irecv(large, 0).wait()
        if rank < 2:
            dist.all_gather([torch.ones(10), torch.ones(10)], small, group=pair)
    dist.barrier()

if __name__ == "__main__":
    mp.start_processes(main, nprocs=3, start_method="fork")  # which import nothing again
"""


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory: pytest.TempPathFactory) -> JobRecords:
    def make(folder: Path) -> None:
        (folder / "script.py").write_text(textwrap.dedent(EXCHANGES))
        done = run_watched(folder, sys.executable, str(folder / "script.py"), str(folder / "rendezvous"))
        assert done.returncode == 0, done.stderr
        assert "fault of the probe" not in done.stderr

    return records_of(made_once(tmp_path_factory, "exchanges", make))


def calls(job: JobRecords, rank: int) -> Counter[tuple[str, int, str]]:
    found: Counter[tuple[str, int, str]] = Counter()
    for row in job.collectives:
        if row.rank == rank:
            found[row.collective, row.peer, row.group] += row.count
    return found


def test_calls_are_counted_by_kind_peer_and_group_whatever_their_form(exchanges: JobRecords) -> None:
    assert {key: count for key, count in calls(exchanges, 0).items() if key[0] != "barrier"} == {
        ("all_reduce", -1, ""): 14,
        ("send", 1, ""): 7,
        ("send", 2, ""): 7,
        ("recv", 2, ""): 7,
        ("all_gather", -1, "0,1"): 7,
    }
    assert calls(exchanges, 1)["recv", 0, ""] == 7  # it asked for whoever sends
    assert calls(exchanges, 2)["send", 0, ""] == calls(exchanges, 2)["recv", 0, ""] == 7


def test_bytes_are_those_of_the_messages_and_a_gather_counts_what_all_ranks_give(exchanges: JobRecords) -> None:
    moved: Counter[tuple[str, str]] = Counter()
    for row in exchanges.collectives:
        if row.rank == 0:
            moved[row.collective, row.size_class] += row.bytes

    assert moved["all_reduce", "<=1MiB"] == 7 * 200_000
    assert moved["all_reduce", "<=64KiB"] == 7 * 40
    assert moved["all_gather", "<=64KiB"] == 7 * 80


def test_who_waits_for_a_late_sender_is_blocked_for_as_long(exchanges: JobRecords) -> None:
    blocked: Counter[tuple[int, str, int]] = Counter()
    for row in exchanges.collectives:
        blocked[row.rank, row.collective, row.peer] += row.seconds  # type: ignore[assignment]

    assert blocked[1, "recv", 0] > 7 * 0.04
    assert blocked[2, "send", 0] > 7 * 0.04  # asynchronous, and waited for at once
    assert blocked[0, "send", 1] < blocked[1, "recv", 0]


def test_the_gradients_that_are_exchanged_in_backward_have_their_bytes_in_heartbeats(exchanges: JobRecords) -> None:
    assert {beat.signals["gradient_bytes"] for beat in exchanges.heartbeats} == {4.0 * (100 * 10 + 10)}


def test_time_in_asynchronous_calls_is_waiting_of_the_step(exchanges: JobRecords) -> None:
    in_steps = sum(step.phase_seconds.get("collective", 0.0) for step in exchanges.steps if step.rank == 2)

    assert in_steps > 5 * 0.04
    assert {step.backward_calls for step in exchanges.steps} == {1}
