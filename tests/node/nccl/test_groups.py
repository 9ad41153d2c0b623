"""Processes of the Inspector and ranks, communicators and process groups: the truth is planted."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from inspecting import line, message
from tachoscope.training.parallel_layout import groups_of
from tachoscope_node.nccl.groups import MAX_NAMES, Groups, Member
from tachoscope_node.nccl.line import OTHER, Operation, parse

LAYOUT = {"pp": 2, "dp": 2, "tp": 2}


def member(
    rank: int, *, job: str = "job", pid: int = 0, uid: int = 7, layout: dict[str, int] | None = None, world: int = 8
) -> Member:
    return Member(job, rank, 0, pid or 100 + rank, world, uid, LAYOUT if layout is None else layout)


def operation(rank: int = 0, ranks: int = 8, pid: int = 100, **fields: Any) -> Operation:
    return parse(json.dumps(line(rank=rank, ranks=ranks, pid=pid, **fields)).encode())


def test_every_dimension_of_a_layout_is_found_though_all_are_of_the_same_size() -> None:
    members = [member(rank) for rank in range(8)]
    groups = Groups(lambda: members)
    told = [
        (one, name, ranks, operation(ranks.index(one.rank), 2, one.pid, comm=f"0x{name}{ranks[0]}"))
        for one in members
        for name, (ranks,) in groups_of(one.rank, LAYOUT).items()
    ]
    for one, _, _, found in told:
        groups.learn_group(one, found)

    for one, name, ranks, found in told:
        assert groups.label(one, found) == name
        assert groups.ranks(one, found) == ",".join(map(str, ranks))
        assert groups.global_rank(one, found, 1) == ranks[1]


def test_a_communicator_as_large_as_the_job_is_all_ranks() -> None:
    groups, found = Groups(list), operation(3, 8, 103)

    assert groups.label(member(3), found) == "all"
    assert groups.ranks(member(3), found) == ""
    assert groups.global_rank(member(3), found, 5) == 5


def test_without_a_layout_it_goes_by_its_name_else_by_its_size_and_by_its_ranks_where_all_are_on_the_node() -> None:
    members = [member(rank, layout={}) for rank in (4, 6)]
    groups = Groups(lambda: members)
    named = [operation(place, 2, one.pid, name="my pg!") for place, one in enumerate(members)]
    plain = operation(0, 2, 104, comm="0x2")
    for one, found in zip(members, named, strict=True):
        groups.learn_group(one, found)
    groups.learn_group(members[0], plain)

    assert groups.label(members[0], named[0]) == "my_pg_"
    assert groups.ranks(members[0], named[0]) == "4,6"
    assert groups.label(members[0], plain) == "of_2"
    assert groups.ranks(members[0], plain) == "0x2", "who the other one is nobody knows, and it is not all ranks"
    assert groups.global_rank(members[0], plain, 1) == -1
    assert groups.label(None, plain) == "of_2"


def test_names_of_communicators_are_bounded() -> None:
    groups = Groups(list)
    labels = {groups.label(None, operation(0, 2, name=f"pg{number}")) for number in range(500)}

    assert len(labels) == MAX_NAMES + 1
    assert OTHER in labels


def test_a_process_is_the_rank_with_its_id_and_its_user_and_no_other() -> None:
    members = [member(rank) for rank in range(8)]
    groups = Groups(lambda: members)

    assert groups.member(7, [operation(0, 2, 103)]) == members[3]
    assert groups.member(8, [operation(0, 2, 103)]) is None, "another user speaks for nobody's job"
    assert groups.member(7, [operation(0, 2, 999)]) is None


def test_of_two_with_the_same_process_id_the_place_among_all_ranks_decides_or_nobody_is_taken() -> None:
    members = [member(rank, pid=1) for rank in (0, 1)]
    groups = Groups(lambda: members)

    assert groups.member(7, [operation(1, 2, 1)]) is None
    assert groups.member(7, [operation(1, 2, 1), operation(1, 8, 1, comm="0x2")]) == members[1]


def test_a_message_has_the_global_rank_of_its_peer() -> None:
    one, other = member(1), member(5)
    groups = Groups(lambda: [one, other])
    found = parse(json.dumps(message(rank=0, ranks=2, peer=1, pid=101)).encode())
    groups.learn_group(one, found)
    groups.learn_group(other, found._replace(rank=1, pid=105))

    assert groups.label(one, found) == "pp"
    assert groups.global_rank(one, found, found.peer) == 5


def test_what_is_remembered_of_communicators_is_bounded() -> None:
    groups, one = Groups(list), member(0)
    for number, place in product(range(2000), range(2)):
        groups.learn_group(one, operation(place, 4, comm=f"0x{number:x}"))

    assert len(groups._communicators) <= 1024
