"""Planted hangs: who keeps the others is named, with the kind, and nobody else."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from recorder_dumps import PlantedDump, world
from tachoscope_analyzers.flight_recorder.read import read_all
from tachoscope_analyzers.flight_recorder.verdict import HangVerdict, Kind, verdict

Planted = dict[int, PlantedDump]


def judged(folder: Path, dumps: Planted) -> HangVerdict:
    return verdict(read_all(dump.write(folder) for dump in dumps.values()))


def found(folder: Path, dumps: Planted) -> dict[int, str]:
    return {one.rank: one.kind.value for one in judged(folder, dumps).stuck}


def all_enqueue(dumps: Planted, group: str = "0", besides: tuple[int, ...] = (), **what: object) -> None:
    for rank, dump in dumps.items():
        if rank not in besides and rank in dump.groups[group][1]:
            dump.enqueue(group, **what)  # type: ignore[arg-type]


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_a_rank_that_never_enqueued_what_all_others_did_is_host_stuck(tmp_path: Path, ranks: int) -> None:
    dumps = world(ranks)
    all_enqueue(dumps, besides=(1,))

    (one,) = judged(tmp_path, dumps).stuck
    assert (one.rank, one.kind, one.waiting) == (1, Kind.HOST, ranks - 1)
    assert one.operation is not None and one.operation.sequence == 6


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
@pytest.mark.parametrize("further", [0, 3])
def test_a_rank_whose_device_is_behind_those_of_its_peers_is_device_stuck(tmp_path: Path, ranks: int, further: int) -> None:
    dumps = world(ranks)
    stuck = ranks - 1
    for _ in range(1 + further):
        dumps[stuck].enqueue("0")
        all_enqueue(dumps, besides=(stuck,), done=True)
    all_enqueue(dumps)

    (one,) = judged(tmp_path, dumps).stuck
    assert (one.rank, one.kind, one.waiting) == (stuck, Kind.DEVICE, ranks - 1)
    assert ("more after it" in one.detail) == (further > 0)


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("size mismatch", {"sizes": ((8,), (3, 3))}, {"sizes": ((8,), (3, 2))}),
        ("dtype mismatch", {"dtype": "Float"}, {"dtype": "BFloat16"}),
        ("type mismatch", {"name": "all_reduce"}, {"name": "broadcast"}),
    ],
)
def test_a_rank_that_enqueued_something_else_than_others_is_a_mismatch(
    tmp_path: Path, kind: str, right: dict[str, object], wrong: dict[str, object]
) -> None:
    dumps = world(4)
    all_enqueue(dumps, besides=(2,), **right)
    dumps[2].enqueue("0", **wrong)  # type: ignore[arg-type]
    all_enqueue(dumps, besides=(2,))  # what follows from it is not told again

    assert found(tmp_path, dumps) == {2: kind}


def test_who_gave_less_and_is_through_is_named_and_no_device_of_those_that_wait_for_more(tmp_path: Path) -> None:
    dumps = world(4)
    all_enqueue(dumps, besides=(2,))
    dumps[2].enqueue("0", sizes=((4,),))
    dumps[2].entries[-1]["retired"] = True
    dumps[2].last["0"][1] = dumps[2].last["0"][0]
    dumps[2].enqueue("0")

    assert found(tmp_path, dumps) == {2: "size mismatch"}


def test_shapes_that_hold_as_many_elements_are_no_mismatch(tmp_path: Path) -> None:
    dumps = world(4)
    all_enqueue(dumps, besides=(2, 3), sizes=((8, 2),))
    dumps[2].enqueue("0", sizes=((2, 8),))

    assert found(tmp_path, dumps) == {3: "host-stuck"}


def test_inputs_that_may_differ_are_no_mismatch(tmp_path: Path) -> None:
    dumps = world(3)
    for rank in (0, 1):
        dumps[rank].enqueue("0", "all_to_all", sizes=((rank + 1,),))

    assert found(tmp_path, dumps) == {2: "host-stuck"}


def test_two_collectives_in_another_order_are_told_as_that(tmp_path: Path) -> None:
    dumps = world(4)
    for rank, dump in dumps.items():
        for name in ("all_reduce", "broadcast") if rank != 1 else ("broadcast", "all_reduce"):
            dump.enqueue("0", name)

    assert found(tmp_path, dumps) == {1: "order mismatch"}


def test_of_two_ranks_that_differ_nobody_can_say_which_is_wrong(tmp_path: Path) -> None:
    dumps = world(2)
    dumps[0].enqueue("0", sizes=((8,),))
    dumps[1].enqueue("0", sizes=((9,),))

    assert found(tmp_path, dumps) == {0: "size mismatch", 1: "size mismatch"}


def test_a_rank_without_a_dump_is_named_and_not_said_to_be_stuck_where(tmp_path: Path) -> None:
    dumps = world(4)
    all_enqueue(dumps)
    del dumps[3]

    result = judged(tmp_path, dumps)
    assert [(one.rank, one.kind) for one in result.stuck] == [(3, Kind.NO_DUMP)]
    assert result.without == (3,)


def test_all_ranks_in_one_collective_that_no_device_completes_is_unknown_and_not_blamed(tmp_path: Path) -> None:
    dumps = world(4)
    all_enqueue(dumps)

    assert found(tmp_path, dumps) == dict.fromkeys(range(4), "unknown")


def test_nothing_pending_is_no_hang(tmp_path: Path) -> None:
    result = judged(tmp_path, world(4))

    assert (result.stuck, result.pending) == ((), ())


def grid(rows: int, columns: int) -> Planted:
    """Return a job of `rows` data parallel replicas of `columns` tensor parallel ranks."""
    ranks = rows * columns
    found: Planted = {}
    for rank in range(ranks):
        row, column = divmod(rank, columns)
        groups = {
            "0": ("default_pg", list(range(ranks))),
            f"1{row}": ("TENSOR", [row * columns + one for one in range(columns)]),
            f"2{column}": ("DATA", [one * columns + column for one in range(rows)]),
        }
        found[rank] = PlantedDump(rank, groups)
    return found


def test_who_waits_for_a_waiting_rank_is_passed_on_to_the_one_that_keeps_all(tmp_path: Path) -> None:
    dumps = grid(4, 4)
    for rank, dump in dumps.items():
        row, column = divmod(rank, 4)
        if rank == 5:
            continue  # elsewhere
        if row == 1:
            dump.enqueue(f"1{row}")  # waits for rank 5
        else:
            dump.enqueue(f"1{row}", done=True)
            dump.enqueue(f"2{column}")  # waits for row 1

    (one,) = judged(tmp_path, dumps).stuck
    assert (one.rank, one.kind) == (5, Kind.HOST)


def test_two_stuck_ranks_of_one_job_are_both_found(tmp_path: Path) -> None:
    dumps = grid(4, 4)
    for rank, dump in dumps.items():
        if rank not in (2, 13):
            dump.enqueue(f"1{rank // 4}", done=rank // 4 in (1, 2))
            if rank // 4 in (1, 2):
                dump.enqueue(f"2{rank % 4}")

    assert found(tmp_path, dumps) == {2: "host-stuck", 13: "host-stuck"}


def pipeline(stages: int) -> Planted:
    groups = {"0": ("default_pg", list(range(stages))), "1": ("PIPELINE", list(range(stages)))}
    return {rank: PlantedDump(rank, dict(groups)) for rank in range(stages)}


def test_a_stage_that_neither_receives_nor_sends_keeps_all_stages_behind_it(tmp_path: Path) -> None:
    dumps = pipeline(4)
    for rank in (2, 3):
        dumps[rank].message("1", f"recv {rank}<-{rank - 1}", 9)

    (one,) = judged(tmp_path, dumps).stuck
    assert (one.rank, one.kind) == (1, Kind.HOST)
    assert one.operation is not None and one.operation.peer == 1


def test_a_send_and_its_receive_that_are_both_pending_wait_for_no_rank(tmp_path: Path) -> None:
    dumps = pipeline(2)
    dumps[0].message("1", "send 0->1", 9)
    dumps[1].message("1", "recv 1<-0", 9)

    assert set(found(tmp_path, dumps).values()) == {"unknown"}


def host(dumps: Planted, rank: int) -> None:
    all_enqueue(dumps, besides=(rank,))


def device(dumps: Planted, rank: int) -> None:
    all_enqueue(dumps, besides=(rank,), done=True)
    dumps[rank].enqueue("0")
    all_enqueue(dumps)


def size(dumps: Planted, rank: int) -> None:
    all_enqueue(dumps, besides=(rank,))
    dumps[rank].enqueue("0", sizes=((9,),))


@pytest.mark.parametrize(
    ("plant", "kind"), [(host, "host-stuck"), (device, "device-stuck"), (size, "size mismatch")], ids=lambda one: str(one)[:20]
)
def test_wherever_a_hang_is_planted_that_rank_and_no_other_is_found(
    tmp_path: Path, plant: Callable[[Planted, int], None], kind: str
) -> None:
    chance = random.Random(7)
    for case in range(12):
        dumps = world(chance.randint(3, 24), before=chance.randint(0, 9))
        rank = chance.randrange(len(dumps))
        plant(dumps, rank)
        assert found(tmp_path / str(case), dumps) == {rank: kind}
