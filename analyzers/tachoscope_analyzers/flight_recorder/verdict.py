"""Which ranks keep the others waiting: from {rank: dump} to a verdict, by what a hang means and no threshold.

A rank waits for another where it enqueued a collective that the other has not, or where what it sends or receives has no other end
yet. Of those that are waited for, who wait for somebody themselves are passed on along the chain: the rest keep all others. A rank
whose device has not completed what the devices of its peers have is stuck on its device, whatever it waits for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from tachoscope_analyzers.flight_recorder.dump import Dump, Operation
from tachoscope_analyzers.flight_recorder.known import KnownGroup, known_groups


class Kind(StrEnum):
    """How a rank keeps the others."""

    HOST = "host-stuck"
    DEVICE = "device-stuck"
    SIZE = "size mismatch"
    DTYPE = "dtype mismatch"
    TYPE = "type mismatch"
    ORDER = "order mismatch"
    NO_DUMP = "no dump"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BlockingRank:
    """A rank that keeps others.

    Attributes:
        operation: where they wait for it, as one of them enqueued it; None: they wait for all of their group. waiting: how many do.
        detail: what is different about it, a sentence.
    """

    rank: int
    kind: Kind
    operation: Operation | None
    waiting: int
    detail: str


@dataclass(frozen=True, slots=True)
class HangVerdict:
    """Ranks that keep the others, rising; none: nothing is pending, or it is pending for no reason that dumps tell.

    Attributes:
        pending: ranks with an operation that has not ended. without: members of groups of whom there is no dump.
        groups: descriptions by name.
    """

    stuck: tuple[BlockingRank, ...]
    pending: tuple[int, ...]
    without: tuple[int, ...]
    groups: Mapping[str, str]


_SAME_SIZES = (
    "all_reduce",
    "reduce",
    "broadcast",
    "_all_gather_base",
    "all_gather_into_tensor",
    "_reduce_scatter_base",
    "all_gather",
)
"""Of these the inputs of all ranks have as many elements."""
_ROOTED = ("broadcast", "reduce", "scatter", "gather")
"""Of these one rank may be through while another waits."""

Waits = dict[int, dict[int, Operation]]
"""Whom each rank waits for, and in which operation."""


def verdict(dumps: Mapping[int, Dump]) -> HangVerdict:
    """Return who keeps whom, from the dumps of all ranks, or of those that could be had."""
    groups = known_groups(dumps)
    pending = tuple(rank for rank, dump in dumps.items() if any(one.pending for one in dump.operations))
    without = tuple(sorted({rank for group in groups.values() for rank in group.ranks} - set(dumps)))
    stuck: dict[int, BlockingRank] = {}
    different = {name: _different(group) for name, group in groups.items()}
    differ_at = {name: found[0].operation.sequence for name, found in different.items() if found and found[0].operation}
    for one in [*chain.from_iterable(different.values()), *sorted(_on_device(groups, differ_at), key=_created)]:
        stuck.setdefault(one.rank, one)
    waits = _waits(dumps, groups)
    for rank, kept in _roots(waits, set(stuck)).items():
        stuck[rank] = _absent(rank, dumps, kept)
    if not stuck and pending:
        stuck.update((one.rank, one) for one in _together(dumps, groups))
    return HangVerdict(
        tuple(stuck[rank] for rank in sorted(stuck)), pending, without, {name: one.description for name, one in groups.items()}
    )


def _different(group: KnownGroup) -> list[BlockingRank]:
    """Return ranks that enqueued another operation under the same number than most of their group, of the first such number."""
    numbers: dict[int, dict[int, Operation]] = defaultdict(dict)
    for rank, operations in group.operations.items():
        for sequence, operation in operations.items():
            numbers[sequence][rank] = operation
    for sequence in sorted(numbers):
        found = list(_odd(group, numbers[sequence])) if any(one.pending for one in numbers[sequence].values()) else []
        if found:
            return found  # what follows a mismatch follows from it
    return []


def _odd(group: KnownGroup, operations: Mapping[int, Operation]) -> Iterable[BlockingRank]:
    names = {rank: one.name for rank, one in operations.items()}
    if len(set(names.values())) > 1:
        for rank in _minority(names):
            other = next(one for one in operations.values() if one.name != names[rank])
            later = any(one.name == other.name for number, one in group.operations[rank].items() if number > other.sequence)
            kind = Kind.ORDER if later else Kind.TYPE
            yield BlockingRank(
                rank, kind, other, len(operations) - 1, f"it enqueued {names[rank]} where others enqueued {other.name}"
            )
        return
    same = next(iter(names.values())) in _SAME_SIZES
    for kind, facts in (
        (Kind.SIZE, {rank: _elements(one) for rank, one in operations.items()} if same else {}),
        (Kind.DTYPE, {rank: ", ".join(one.dtypes) for rank, one in operations.items()}),
    ):
        if len(set(facts.values())) > 1:
            for rank in _minority(facts):
                other = next(one for which, one in operations.items() if facts[which] != facts[rank])
                theirs = next(fact for fact in facts.values() if fact != facts[rank])
                yield BlockingRank(rank, kind, other, len(operations) - 1, f"its input is {facts[rank]}, that of others {theirs}")
            return


def _elements(operation: Operation) -> str:
    total = 0
    for size in operation.sizes:
        count = 1
        for length in size:
            count *= length
        total += count
    return f"{total} elements"


def _minority(facts: Mapping[int, str]) -> list[int]:
    """Return who differs from most; of two sides that are as large, both."""
    counts = Counter(facts.values()).most_common()
    if len(counts) > 1 and counts[0][1] == counts[1][1]:
        return list(facts)
    return [rank for rank, fact in facts.items() if fact != counts[0][0]]


def _on_device(groups: Mapping[str, KnownGroup], differ_at: Mapping[str, int]) -> Iterable[BlockingRank]:
    """Yield ranks that enqueued a collective which peers completed, and have not completed it.

    It cannot end for anybody before all have taken part, so this rank's part was done, and its device then did not go on. Unless
    the ranks' parts differ: who gave less may be through while the others wait for more.

    Args:
        differ_at: the number of the first operation in which a group's ranks differ.
    """
    for name, group in groups.items():
        furthest = max((one.completed for one in group.progress.values()), default=-1)
        for rank, one in group.progress.items():
            operation = group.operations.get(rank, {}).get(one.completed + 1)
            if (
                one.completed < min(furthest, one.enqueued)
                and operation is not None
                and operation.pending
                and operation.name not in _ROOTED
                and operation.sequence < differ_at.get(name, operation.sequence + 1)
            ):
                ahead = sum(other.completed > one.completed for other in group.progress.values())
                more = furthest - one.completed - 1
                yield BlockingRank(
                    rank, Kind.DEVICE, operation, ahead, "peers completed it" + f" and {more} more after it" * (more > 0)
                )


def _created(stuck: BlockingRank) -> int:
    return stuck.operation.created_ns if stuck.operation else 0


def _waits(dumps: Mapping[int, Dump], groups: Mapping[str, KnownGroup]) -> Waits:
    """Return whom each rank waits for."""
    found: Waits = defaultdict(dict)
    for rank, dump in dumps.items():
        for operation in dump.operations:
            if operation.pending:
                for other in _missing(operation, rank, dumps, groups[operation.group]):
                    found[rank].setdefault(other, operation)
    return found


def _missing(operation: Operation, rank: int, dumps: Mapping[int, Dump], group: KnownGroup) -> list[int]:
    """Return who is not there for an operation that a rank has enqueued."""
    if operation.peer is not None:
        return [] if operation.peer == rank or _meets(operation, rank, dumps.get(operation.peer)) else [operation.peer]
    return [other for other in group.ranks if other != rank and not _enqueued(operation, other, dumps, group)]


def _enqueued(operation: Operation, rank: int, dumps: Mapping[int, Dump], group: KnownGroup) -> bool:
    """Whether a rank enqueued a collective, as far as it is known; a rank that tells nothing of the group is taken to have."""
    if rank not in dumps:
        return False
    if operation.sequence in group.operations.get(rank, {}):
        return True
    if rank in group.progress:
        return group.progress[rank].enqueued >= operation.sequence
    return not group.operations.get(rank) or max(group.operations[rank]) > operation.sequence


def _meets(operation: Operation, rank: int, other: Dump | None) -> bool:
    """Return whether the other end of a send or receive is pending there too."""
    return other is not None and any(
        one.pending and one.peer == rank and one.group == operation.group and one.sends != operation.sends
        for one in other.operations
    )


def _roots(waits: Waits, stuck: set[int]) -> dict[int, list[Operation]]:
    """Return who is waited for and waits for nobody, with the operations in which others wait.

    Who waits for somebody that is stuck already is explained by that.
    """
    kept: dict[int, list[Operation]] = defaultdict(list)
    for rank, others in waits.items():
        for other, operation in others.items():
            if other not in stuck and not waits.get(other) and rank not in stuck:
                kept[other].append(operation)
    return kept


def _absent(rank: int, dumps: Mapping[int, Dump], kept: list[Operation]) -> BlockingRank:
    first = min(kept, key=lambda one: (one.peer is not None, one.created_ns))  # a collective says more than a message
    if rank not in dumps:
        return BlockingRank(rank, Kind.NO_DUMP, first, len(kept), "its dump is missing: its process may have exited, or be stuck")
    if any(one.pending for one in dumps[rank].operations):
        return BlockingRank(
            rank, Kind.UNKNOWN, first, len(kept), "it is not there, and what it waits for itself is not in the dumps"
        )
    return BlockingRank(
        rank, Kind.HOST, first, len(kept), "it never enqueued it, and has nothing pending: its process is elsewhere"
    )


def _together(dumps: Mapping[int, Dump], groups: Mapping[str, KnownGroup]) -> list[BlockingRank]:
    """Return all members of the group whose collective has been pending longest: all have enqueued it, and nobody completes it."""
    oldest = min((one for dump in dumps.values() for one in dump.operations if one.pending), key=lambda one: one.created_ns)
    members = [rank for rank in groups[oldest.group].ranks if rank in dumps]
    detail = "all of its group enqueued it and none completes it: a device or the network, which dumps do not tell apart"
    return [BlockingRank(rank, Kind.UNKNOWN, oldest, len(members) - 1, detail) for rank in members]
