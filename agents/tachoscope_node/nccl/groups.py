"""Which job and rank a process of NCCL's Inspector is, and which process group a communicator is.

A process is the rank that has its process id and its user. A communicator is all ranks of the job if it is as large; else the
group of a parallel dimension (`tachoscope.describe(layout=...)`) that has this rank at this place, judged by all ranks of the node
that are in it; else it goes by the name that the program gave it, and without one by its size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tachoscope.training.parallel_layout import groups_of
from tachoscope_node.nccl.line import OTHER, Operation

ALL = "all"
"""Label of the group of all ranks."""
MAX_COMMUNICATORS = 1024
MAX_NAMES = 16
"""Names that programs gave their communicators, told apart; the others are `other`."""
MOST_RANKS_NAMED = 16
_UNSAFE = re.compile(r"[^A-Za-z0-9._:-]+")


@dataclass(frozen=True, slots=True)
class Member:
    """A rank of a job on this node. layout: sizes by parallel dimension, outermost first; empty: not said."""

    job: str
    rank: int
    attempt: int
    pid: int
    world_size: int
    uid: int
    layout: Mapping[str, int]


Members = Callable[[], Iterable[Member]]


@dataclass(slots=True)
class _Communicator:
    """dimensions: those that it may be a group of, None while no member is known. ranks: global, by rank in it, as far as seen."""

    ranks_total: int
    dimensions: set[str] | None = None
    ranks: dict[int, int] = field(default_factory=dict)


class Groups:
    """What is known of processes and communicators, from their operations."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._communicators: dict[tuple[str, str], _Communicator] = {}
        self._names: set[str] = set()

    def member(self, uid: int, operations: Iterable[Operation]) -> Member | None:
        """Return who wrote some operations, all of one process; None where nobody or more than one can be.

        Args:
            uid: of the file that they are in: nobody speaks for another user's job.
        """
        found = list(self._members())
        for one in {one.communicator: one for one in operations}.values():
            found = [member for member in found if member.pid == one.pid and member.uid == uid and _at_its_place(member, one)]
        return found[0] if len(found) == 1 else None

    def learn_group(self, member: Member, operation: Operation) -> None:
        """Learn from an operation which group its communicator is; do so with all that are there before asking."""
        key = member.job, operation.communicator
        known = self._communicators.get(key)
        if known is None:
            if len(self._communicators) >= MAX_COMMUNICATORS:
                del self._communicators[next(iter(self._communicators))]
            known = self._communicators[key] = _Communicator(operation.ranks)
        if operation.rank in known.ranks:
            return
        if len(known.ranks) < MAX_COMMUNICATORS:
            known.ranks[operation.rank] = member.rank
        possible = {
            name
            for name, (ranks,) in groups_of(member.rank, member.layout).items()
            if len(ranks) == operation.ranks and ranks[operation.rank] == member.rank
        }
        known.dimensions = possible if known.dimensions is None else known.dimensions & possible

    def label(self, member: Member | None, operation: Operation) -> str:
        """Return the group of an operation as a label: `all`, a dimension, the communicator's name, or such as `of_4`."""
        if member is not None:
            if operation.ranks == member.world_size:
                return ALL
            known = self._communicators.get((member.job, operation.communicator))
            if known is not None and known.dimensions is not None and len(known.dimensions) == 1:
                return next(iter(known.dimensions))
        if not operation.name:
            return f"of_{operation.ranks}"
        name = _UNSAFE.sub("_", operation.name)
        if name not in self._names:
            if len(self._names) >= MAX_NAMES:
                return OTHER
            self._names.add(name)
        return name

    def ranks(self, member: Member, operation: Operation) -> str:
        """Return the global ranks of an operation's group as records name them: empty for all, else the ranks, or what is known."""
        if operation.ranks == member.world_size:
            return ""
        known = self._communicators.get((member.job, operation.communicator))
        ranks: list[int] = []
        if known is not None and known.dimensions is not None and len(known.dimensions) == 1:
            (ranks,) = groups_of(member.rank, member.layout)[next(iter(known.dimensions))]
        elif known is not None and len(known.ranks) == operation.ranks:
            ranks = [known.ranks[place] for place in range(operation.ranks)]
        if not ranks:
            return operation.name or operation.communicator
        named = ",".join(map(str, ranks[:MOST_RANKS_NAMED]))
        return named if len(ranks) <= MOST_RANKS_NAMED else f"{named},... ({len(ranks)} ranks)"

    def global_rank(self, member: Member, operation: Operation, rank: int) -> int:
        """Return the global rank of a rank of an operation's communicator; -1 where it is not known."""
        if operation.ranks == member.world_size:
            return rank
        known = self._communicators.get((member.job, operation.communicator))
        if known is not None and known.dimensions is not None and len(known.dimensions) == 1:
            (ranks,) = groups_of(member.rank, member.layout)[next(iter(known.dimensions))]
            return ranks[rank]
        return known.ranks.get(rank, -1) if known is not None else -1


def _at_its_place(member: Member, operation: Operation) -> bool:
    """Return whether the rank can be at that place: in a communicator of all ranks it is at its own."""
    return operation.ranks < member.world_size or operation.rank == member.rank
