"""Which host or switch the slow links of a job have in common, by where its ranks are in the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from tachoscope_core.records.records import JobStarted
from tachoscope_core.report.report import Evidence

Place = tuple[str, ...]
"""Switches from the top of the network downwards, then the host; of a rank whose topology is not known only the host."""
Link = frozenset[int]
_SEPARATOR = "/"
_BEFORE, _AFTER = "links through ", ", all slow, and no other link is"


def places(starts: Iterable[JobStarted]) -> dict[int, Place]:
    """Return by rank where it is, as far as its process said."""
    found = {}
    for start in starts:
        switches = [name for name in start.lineage.get("topology", "").split(_SEPARATOR) if name]
        found[start.rank] = (*(f"switch {name}" for name in switches), f"host {start.host}")
    return found


def signal_of(part: str) -> str:
    """Return how the evidence says that all slow links pass a host or switch."""
    return f"{_BEFORE}{part}{_AFTER}"


def part_in(evidence: Evidence) -> str | None:
    """Return the host or switch of a piece of evidence, such as `switch leaf-3`; None: it is about something else."""
    if not (evidence.signal.startswith(_BEFORE) and evidence.signal.endswith(_AFTER)):
        return None
    return evidence.signal.removeprefix(_BEFORE).removesuffix(_AFTER)


def parts_of(link: Link, where: Mapping[int, Place]) -> frozenset[str]:
    """Return the hosts and switches on the path of a link, up to the lowest switch that both ranks share."""
    one, other = (where.get(rank, ()) for rank in (min(link), max(link)))
    if not one or not other:
        return frozenset()
    if one == other:
        return frozenset({f"inside of {one[-1]}"})
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    lowest = one[shared - 1 : shared]
    return frozenset((*lowest, *one[shared:], *other[shared:]))


def common_part(slow: Collection[Link], others: Collection[Link], where: Mapping[int, Place]) -> tuple[str, int] | None:
    """Return the host or switch that all slow links use and no other link uses, with the number of slow links.

    Returns None unless there is exactly one such part.
    """
    passed = [parts_of(link, where) for link in slow]
    if not passed:
        return None
    well: Counter[str] = Counter(part for link in others for part in parts_of(link, where))
    only = [part for part in frozenset.intersection(*passed) if not well[part]]
    # A switch with a single host below it cannot be distinguished from that host.
    return (only[0], len(passed)) if len(only) == 1 else None
