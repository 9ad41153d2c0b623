"""What the flight recorder of one rank held when it was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """A collective, or a send or receive.

    Attributes:
        group: name of the process group. sequence: of the group's collectives, or of its sends and receives where `peer` is known.
        name: `all_reduce`. peer: the global rank at the other end of a send or receive, None of collectives. sends: which end.
        sizes: of the inputs. dtypes: of the inputs. pending: neither completed nor given up. created_ns: Unix time.
        stack: where it was called, the innermost first: `train.py:12 step`; empty where the recorder kept none.
    """

    group: str
    sequence: int
    name: str
    peer: int | None
    sends: bool
    sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    pending: bool
    created_ns: int
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: what it is for, and the global ranks in it; empty: the dump does not tell them."""

    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """Numbers of the last collectives of a group that a rank enqueued, and that its device completed."""

    enqueued: int
    completed: int


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank's recorder.

    Attributes:
        groups: by name. numbers: names of groups by the number that this rank gave them, where its operations tell.
        progress: by that number, also of groups of which it holds no operation. What groups with sends count is not that of others.
    """

    rank: int
    version: str
    groups: Mapping[str, Group]
    numbers: Mapping[int, str]
    progress: Mapping[int, Progress]
    operations: tuple[Operation, ...]
