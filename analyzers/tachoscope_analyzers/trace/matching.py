"""The same collective on all ranks: found by its group and its place in the group's sequence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tachoscope_analyzers.trace.collective_names import POINT_TO_POINT

Rows = npt.NDArray[np.int64]

ABSENT = np.iinfo(np.int64).min
_MOST_SHIFT = 64
"""Ranks whose recordings began at different moments are at most so many collectives apart."""
_MOST_DIFFERENT_RATIO = 0.1
_SAME_SPREAD_RATIO, _SAME_SPREAD_NS = 10, 100_000
"""How much worse the ends may fit where the steps' numbers say that it is the same collective."""
_LEAST_FOR_A_SPREAD = 3
_KEYS = ["group", "group_description", "group_ranks", "channel"]


@dataclass(frozen=True)
class Matched:
    """The collectives of one process group over its ranks: R ranks and N collectives, in the group's order.

    Attributes:
        group, description: as the trace names them, "" where it does not. size: ranks that the group has, -1 where not known.
        ranks: shape (R,), rising. start, duration, exposed: ns on each rank's own clock, shape (R, N), `ABSENT` where a rank has no
            record of it. kind, bytes, step: shape (N,), of the first rank that has it; -1 where not known.
    """

    group: str
    description: str
    size: int
    ranks: Rows
    start: Rows
    duration: Rows
    exposed: Rows
    kind: npt.NDArray[np.object_]
    bytes: Rows
    step: Rows

    @property
    def here(self) -> npt.NDArray[np.bool_]:
        """Whether each rank has each collective, shape (R, N)."""
        return np.asarray(self.start != ABSENT)

    @property
    def end(self) -> Rows:
        """End on each rank's own clock, shape (R, N), `ABSENT` where absent."""
        return np.where(self.here, self.start + self.duration, ABSENT)


def match(arrivals: Mapping[int, pd.DataFrame]) -> tuple[list[Matched], list[tuple[str, tuple[int, ...]]]]:
    """Return the collectives of all process groups that at least two ranks recorded, and the ranks that fit to no other by group.

    Args:
        arrivals: `RankSummary.arrivals` by rank.

    What has a sequence number is matched by it. Else collectives are counted from the first: the sequence of kinds (and sizes, for
    all_reduce) must be that of the other ranks, moved by some places where recordings began at different moments; of several such
    moves that one is taken which agrees with the numbers of the steps, unless the ends of the collectives fit another far better.
    Sends and receives, which two ranks share under different kinds, are left out.
    """
    groups: dict[tuple[str, ...], dict[int, pd.DataFrame]] = {}
    for rank in sorted(arrivals):
        table = arrivals[rank]
        for key, part in table[~table["kind"].isin(POINT_TO_POINT)].groupby(_KEYS, observed=True, sort=True):
            groups.setdefault(tuple(map(str, key)), {})[rank] = part
    matched, strangers = [], []
    for key, parts in sorted(groups.items()):
        if len(parts) < 2:
            continue
        places, unfit = _places(parts)
        if unfit:
            strangers.append((key[0] or f"stream {key[3]}", tuple(unfit)))
        if len(places) > 1:
            matched.append(_matched(key[0], key[1], parts, places))
    return matched, strangers


def _places(parts: dict[int, pd.DataFrame]) -> tuple[dict[int, Rows], list[int]]:
    """Return for each rank the place of each of its collectives in the group's sequence, and the ranks that do not fit."""
    if all((part["sequence"] >= 0).all() for part in parts.values()):
        return _by_number(parts), []
    reference = max(parts, key=lambda rank: (len(parts[rank]), -rank))
    places, unfit = {}, []
    for rank, part in parts.items():
        shift = 0 if rank == reference else _shift(parts[reference], part)
        if shift is None:
            unfit.append(rank)
        else:
            places[rank] = np.arange(len(part), dtype=np.int64) + shift
    return places, unfit


def _by_number(parts: dict[int, pd.DataFrame]) -> dict[int, Rows]:
    """Number collectives by (sequence number, how many of this rank had the number before): coalesced ones share one."""
    keyed = {rank: list(zip(part["sequence"], part.groupby("sequence").cumcount(), strict=True)) for rank, part in parts.items()}
    place = {key: number for number, key in enumerate(sorted(set[tuple[int, int]]().union(*keyed.values())))}
    return {rank: np.array([place[key] for key in keys], dtype=np.int64) for rank, keys in keyed.items()}


def _shift(reference: pd.DataFrame, other: pd.DataFrame) -> int | None:
    """Return by how many places the sequence of another rank must be moved to fit, None when no move makes it fit."""
    mine, theirs = _tokens(reference, other)
    ends, other_ends = ((part["start_ns"] + part["duration_ns"]).to_numpy() for part in (reference, other))
    steps, other_steps = reference["step"].to_numpy(), other["step"].to_numpy()
    found = []
    for shift in range(-min(_MOST_SHIFT, len(theirs) - 1), min(_MOST_SHIFT, len(mine) - 1) + 1):
        first, last = max(shift, 0), min(len(mine), len(theirs) + shift)
        if 2 * (last - first) < min(len(mine), len(theirs)):
            continue
        a, b = slice(first, last), slice(first - shift, last - shift)
        different = float((mine[a] != theirs[b]).mean())
        apart = other_ends[b] - ends[a]
        offset = float(np.median(apart))
        same_step = float(((steps[a] == other_steps[b]) & (steps[a] >= 0)).mean())
        spread = float(np.median(np.abs(apart - offset))) if last - first >= _LEAST_FOR_A_SPREAD else math.inf
        found.append((different, spread, -same_step, abs(offset), abs(shift), shift))
    least = min(entry[0] for entry in found)
    if least > _MOST_DIFFERENT_RATIO:
        return None
    fitting = [entry for entry in found if entry[0] <= least + _MOST_DIFFERENT_RATIO / 10]
    least_spread = min(entry[1] for entry in fitting)
    close = [entry for entry in fitting if entry[1] <= _SAME_SPREAD_RATIO * least_spread + _SAME_SPREAD_NS]
    return min(close, key=lambda entry: (round(entry[2], 1), round(entry[3] / _SAME_SPREAD_NS), entry[1], entry[4]))[-1]


def _tokens(*parts: pd.DataFrame) -> list[Rows]:
    sizes = [np.where(part["kind"] == "all_reduce", part["bytes"], -1) for part in parts]
    keys = [list(zip(part["kind"].astype(str), size.tolist(), strict=True)) for part, size in zip(parts, sizes, strict=True)]
    codes = {key: code for code, key in enumerate(dict.fromkeys(_chained(keys)))}
    return [np.array([codes[key] for key in one], dtype=np.int64) for one in keys]


def _chained(lists: Iterable[list[tuple[str, int]]]) -> Iterable[tuple[str, int]]:
    for one in lists:
        yield from one


def _matched(group: str, description: str, parts: dict[int, pd.DataFrame], places: dict[int, Rows]) -> Matched:
    ranks = sorted(places)
    first = min(int(place.min()) for place in places.values())
    count = max(int(place.max()) for place in places.values()) - first + 1
    tables = {name: np.full((len(ranks), count), ABSENT, dtype=np.int64) for name in ("start_ns", "duration_ns", "exposed_ns")}
    facts = {name: np.full(count, -1, dtype=np.int64) for name in ("bytes", "step")}
    kind = np.full(count, "", dtype=object)
    for position, rank in reversed(list(enumerate(ranks))):  # the first rank is written last, so its word stands
        place, part = places[rank] - first, parts[rank]
        for name, table in tables.items():
            table[position, place] = part[name]
        for name, values in facts.items():
            values[place] = part[name]
        kind[place] = part["kind"].astype(str)
    sizes = [int(part["group_size"].max()) for part in parts.values()]
    several = (tables["start_ns"] != ABSENT).sum(axis=0) > 1
    return Matched(
        group=group,
        description=description,
        size=max(sizes),
        ranks=np.array(ranks, dtype=np.int64),
        start=tables["start_ns"][:, several],
        duration=tables["duration_ns"][:, several],
        exposed=tables["exposed_ns"][:, several],
        kind=kind[several],
        bytes=facts["bytes"][several],
        step=facts["step"][several],
    )
