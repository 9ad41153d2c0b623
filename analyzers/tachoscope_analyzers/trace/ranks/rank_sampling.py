"""Which of very many ranks are shown: those that stand out, and some of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def spread(ranks: Sequence[int], most: int) -> list[int]:
    """Return at most so many ranks, evenly spaced from the first to the last."""
    if len(ranks) <= most:
        return list(ranks)
    if most < 2:
        return list(ranks[:most])
    return [ranks[place * (len(ranks) - 1) // (most - 1)] for place in range(most)]


def outstanding(values: Mapping[int, float], most: int) -> tuple[list[int], list[int]]:
    """Return which ranks to show, rising, and which of them stand out.

    A quarter of `most` are the ranks with the lowest values, a quarter those with the highest; between them the others are evenly
    spaced. With no more ranks than `most` all are shown, and none stands out.
    """
    ranks = sorted(values)
    if len(ranks) <= most:
        return ranks, []
    by_value = sorted(ranks, key=lambda rank: (values[rank], rank))
    quarter = most // 4
    extreme = sorted({*by_value[:quarter], *by_value[len(by_value) - quarter :]})
    rest = [rank for rank in ranks if rank not in set(extreme)]
    return sorted([*extreme, *spread(rest, most - len(extreme))]), extreme
