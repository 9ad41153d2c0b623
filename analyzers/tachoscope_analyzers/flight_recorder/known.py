"""What the dumps of all ranks say about each process group together: who is in it, and how far each of them came."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tachoscope_analyzers.flight_recorder.dump import Dump, Operation, Progress


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A process group.

    Attributes:
        ranks: its members, rising. progress: by rank, of those that tell. operations: by rank and number, collectives only.
    """

    name: str
    description: str
    ranks: tuple[int, ...]
    progress: Mapping[int, Progress]
    operations: Mapping[int, Mapping[int, Operation]]


def known_groups(dumps: Mapping[int, Dump]) -> dict[str, KnownGroup]:
    """Return the process groups of all dumps, by name; keys of `dumps` are ranks."""
    progress = _progress(dumps)
    members: dict[str, set[int]] = defaultdict(set)
    descriptions: dict[str, str] = {}
    operations: dict[str, dict[int, dict[int, Operation]]] = defaultdict(lambda: defaultdict(dict))
    for rank, dump in dumps.items():
        for name, group in dump.groups.items():
            members[name] |= set(group.ranks)
            descriptions.setdefault(name, group.description)
        for operation in dump.operations:
            members[operation.group].add(rank)
            if operation.peer is None:
                operations[operation.group][rank][operation.sequence] = operation
    return {
        name: KnownGroup(name, descriptions.get(name, ""), tuple(sorted(ranks)), progress.get(name, {}), operations.get(name, {}))
        for name, ranks in members.items()
    }


def _progress(dumps: Mapping[int, Dump]) -> dict[str, dict[int, Progress]]:
    """Return progress by group and rank.

    A rank without an operation of a group does not tell which number it has there. Ranks of one program number their groups alike:
    the number's description on the others, if it is one, names the group here. Groups with sends count these too, each rank apart.
    """
    mixed = {operation.group for dump in dumps.values() for operation in dump.operations if operation.peer is not None}
    described: dict[int, set[str]] = defaultdict(set)
    for dump in dumps.values():
        for number, name in dump.numbers.items():
            described[number].add(dump.groups[name].description)
    of_mixed = {dump.groups[name].description for dump in dumps.values() for name in mixed if name in dump.groups}
    found: dict[str, dict[int, Progress]] = defaultdict(dict)
    for rank, dump in dumps.items():
        for number, progress in dump.progress.items():
            name = dump.numbers.get(number) or _by_description(dump, described.get(number, set()) - of_mixed)
            if name and name not in mixed:
                found[name][rank] = Progress(progress.enqueued, min(progress.completed, _before_pending(dump, name)))
    return found


def _before_pending(dump: Dump, group: str) -> int:
    """Return up to which number nothing of a group is pending: gloo runs operations side by side, and tells the last that ended."""
    return min((one.sequence for one in dump.operations if one.pending and one.group == group), default=1 << 62) - 1


def _by_description(dump: Dump, descriptions: set[str]) -> str:
    """Return the group of a dump that is for the one purpose; empty: there is none, or more than one."""
    fits = [name for name, group in dump.groups.items() if group.description in descriptions and dump.rank in group.ranks]
    return fits[0] if len(descriptions) == 1 and len(fits) == 1 else ""
