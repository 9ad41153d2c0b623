"""Who exchanges with whom, and when: rounds of pairs that share no host, and the binary search of a ring that failed.

A bad host is in a bad pair in each round, so that a few rounds find it among any number of hosts; more rounds test more links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence

_QUICK_ROUNDS = 3
"""Partners of a host: with two bad ones it can be told from a bad link, with three also where its partner is bad, too."""
_WITNESSES = 3
"""Partners without another bad pair that a host must have met before its bad pairs are blamed on it."""

Pair = tuple[int, int]
Search = Generator[list[list[int]], Sequence[bool], list[Pair]]
"""Yields groups without a common host, is sent which of them failed, and returns the pairs that are to blame."""


def rounds_of(hosts: int, *, quick: bool) -> int:
    """Return how many partners each of so many hosts meets: all of few, else logarithmically many."""
    return min(max(hosts - 1, 1), _QUICK_ROUNDS if quick else 2 + (hosts - 1).bit_length())


def tournament(ranks: Sequence[int], *, quick: bool) -> list[list[Pair]]:
    """Return rounds in which no two ranks meet twice (circle method), as many as `rounds_of`."""
    seats: list[int | None] = [*ranks] if len(ranks) % 2 == 0 else [*ranks, None]
    count = rounds_of(len(ranks), quick=quick) + (len(seats) - len(ranks))  # of an odd number one sits out in each round
    rounds = []
    for _ in range(min(count, len(seats) - 1)):
        both = zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True)
        rounds.append([(one, other) for one, other in both if one is not None and other is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def witnessed(ranks: Sequence[int], met: Collection[Pair], bad: Collection[Pair]) -> list[Pair]:
    """Return a round that pairs hosts of several bad pairs with hosts of none that they have not met; empty: no doubt is left.

    Where several hosts are bad, a good one may have met just these.
    """
    known = {frozenset(pair) for pair in met}
    bad_pairs = Counter(rank for pair in bad for rank in set(pair))
    found: list[Pair] = []
    for suspect in sorted(rank for rank in ranks if bad_pairs[rank] > 1):
        others = [rank for rank in ranks if rank != suspect]
        if sum(bad_pairs[rank] < 2 and frozenset((suspect, rank)) in known for rank in others) >= _WITNESSES:
            continue
        taken = {rank for pair in found for rank in pair}
        free = (rank for rank in others if not bad_pairs[rank] and rank not in taken and frozenset((suspect, rank)) not in known)
        if (witness := next(free, None)) is not None:
            found.append((min(suspect, witness), max(suspect, witness)))
    return found


def search(group: Sequence[int]) -> Search:
    """Find the pairs because of which a group fails: its halves are tried, then, if both are well, what is between them."""
    if len(group) == 2:
        return [(group[0], group[1])]
    parts = _halves(group)
    tried = [part for part in parts if len(part) > 1]
    failed = yield tried
    found: list[Pair] = []
    for part, bad in zip(tried, failed, strict=True):
        if bad:
            found += yield from search(part)
    return found or (yield from _between(*parts))


def _between(one: list[int], other: list[int]) -> Search:
    """Find the pairs of a rank of one group and a rank of the other; either group is well."""
    if len(one) == len(other) == 1:
        return [(one[0], other[0])]
    (first, second), (third, fourth) = _halves(one), _halves(other)
    for combined in (((first, third), (second, fourth)), ((first, fourth), (second, third))):
        tried = [(left, right) for left, right in combined if left and right]
        failed = yield [left + right for left, right in tried]
        found: list[Pair] = []
        for (left, right), bad in zip(tried, failed, strict=True):
            if bad:
                found += yield from _between(left, right)
        if found:
            return found
    return []


def _halves(group: Sequence[int]) -> tuple[list[int], list[int]]:
    middle = (len(group) + 1) // 2
    return [*group[:middle]], [*group[middle:]]


def disjoint(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Return rounds that hold these pairs, each in the first one where both hosts are free."""
    rounds: list[list[Pair]] = []
    for pair in pairs:
        free = (one for one in rounds if not {rank for taken in one for rank in taken} & set(pair))
        found = next(free, None)
        if found is None:
            rounds.append([pair])
        else:
            found.append(pair)
    return rounds
