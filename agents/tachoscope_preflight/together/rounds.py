"""Who exchanges with whom, and when: rounds of pairs that share no host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST_ROUNDS = 15
"""Of more than 16 hosts each meets so many others: enough to tell a bad host from a bad link, in bounded time."""


def tournament(ranks: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Return rounds in which each rank meets each other once (circle method), or the first `MOST_ROUNDS` of them."""
    seats: list[int | None] = [*ranks] if len(ranks) % 2 == 0 else [*ranks, None]
    rounds = []
    for _ in range(min(len(seats) - 1, MOST_ROUNDS)):
        both = zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True)
        rounds.append([(one, other) for one, other in both if one is not None and other is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def disjoint(pairs: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Return rounds that hold these pairs, each in the first one where both hosts are free."""
    rounds: list[list[tuple[int, int]]] = []
    for pair in pairs:
        free = (one for one in rounds if not {rank for taken in one for rank in taken} & set(pair))
        found = next(free, None)
        if found is None:
            rounds.append([pair])
        else:
            found.append(pair)
    return rounds
