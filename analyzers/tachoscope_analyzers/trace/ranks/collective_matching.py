"""The same collective on all ranks: found by its group and its place in the group's sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.events.collective_names import OTHER, POINT_TO_POINT, SYNCHRONOUS

if TYPE_CHECKING:
    import pandas as pd

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
class MatchedCollectives:
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
    def present(self) -> npt.NDArray[np.bool_]:
        """Whether each rank has each collective, shape (R, N)."""
        return np.asarray(self.start != ABSENT)

    @property
    def end(self) -> Rows:
        """End on each rank's own clock, shape (R, N), `ABSENT` where absent."""
        return np.where(self.present, self.start + self.duration, ABSENT)


def match(
    arrivals: Mapping[int, npt.NDArray[Any] | pd.DataFrame],
) -> tuple[list[MatchedCollectives], list[tuple[str, tuple[int, ...]]]]:
    """Return the collectives of all process groups that at least two ranks recorded, and the ranks that fit to no other by group.

    Args:
        arrivals: `RankSummary.arrivals` by rank.

    What has a sequence number is matched by it. Else collectives are counted from the first: the sequence of kinds (and sizes, for
    all_reduce) must be that of the other ranks, moved by some places where recordings began at different moments; of several such
    moves that one is taken which agrees with the numbers of the steps, unless the ends of the collectives fit another far better.
    Sends and receives, which two ranks share under different kinds, are left out.
    """
    if len(arrivals) < 2:
        return [], []
    import pandas as pd  # a third of a second, which a report on one rank does not need

    groups: dict[tuple[str, ...], dict[int, pd.DataFrame]] = {}
    for rank in sorted(arrivals):
        table = pd.DataFrame(arrivals[rank])
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
    """Return the index of each rank's collectives in the group's sequence, and the ranks that do not fit."""
    if all((part["sequence"] >= 0).all() for part in parts.values()):
        return _by_number(parts), []
    reference = max(parts, key=lambda rank: (len(parts[rank]), -rank))
    mine = _Sequence.from_frame(parts[reference])
    places, unfit = {}, []
    for rank, part in parts.items():
        shift = 0 if rank == reference else _shift(mine, _Sequence.from_frame(part))
        if shift is None:
            unfit.append(rank)
        else:
            places[rank] = np.arange(len(part), dtype=np.int64) + shift
    return places, unfit


def _by_number(parts: dict[int, pd.DataFrame]) -> dict[int, Rows]:
    """Number collectives by sequence number and occurrence on the rank: coalesced ones share a number."""
    keyed = {rank: list(zip(part["sequence"], part.groupby("sequence").cumcount(), strict=True)) for rank, part in parts.items()}
    place = {key: number for number, key in enumerate(sorted(set[tuple[int, int]]().union(*keyed.values())))}
    return {rank: np.array([place[key] for key in keys], dtype=np.int64) for rank, keys in keyed.items()}


class _Sequence(msgspec.Struct, frozen=True):
    """A group's collectives on one rank, in order, shape (C,): what tells each from others, its end in ns, its step or -1."""

    token: Rows
    end: Rows
    step: Rows

    @classmethod
    def from_frame(cls, part: pd.DataFrame) -> _Sequence:
        kinds = part["kind"].tolist()
        number = np.array([_KINDS.get(str(kind), 0) for kind in kinds], dtype=np.int64)
        size = np.where([kind == "all_reduce" for kind in kinds], part["bytes"].to_numpy(), -1)
        return cls(number + len(_KINDS) * size, (part["start_ns"] + part["duration_ns"]).to_numpy(), part["step"].to_numpy())


_KINDS = {kind: number for number, kind in enumerate((OTHER, *SYNCHRONOUS, "broadcast", "reduce", "gather", "scatter"))}


class _Fit(msgspec.Struct, frozen=True):
    """How well two sequences fit when one is moved by `shift` places.

    Attributes:
        different_ratio: of the collectives, those that are not of the same kind and size. same_step_ratio: those of the same step.
        spread_ns: median deviation of the distance of their ends from its median `offset_ns`, infinite for fewer than three.
    """

    shift: int
    different_ratio: float
    same_step_ratio: float
    spread_ns: float
    offset_ns: float


def _shift(mine: _Sequence, theirs: _Sequence) -> int | None:
    """Return the shift that makes the other sequence fit, None if none does."""
    at_once = _fit(mine, theirs, _first_common_step(mine, theirs))
    if (
        at_once is not None
        and at_once.spread_ns <= _SAME_SPREAD_NS
        and not at_once.different_ratio
        and at_once.same_step_ratio == 1
    ):
        return at_once.shift
    most, least = min(_MOST_SHIFT, len(mine.end) - 1), -min(_MOST_SHIFT, len(theirs.end) - 1)
    found = [fit for shift in range(least, most + 1) if (fit := _fit(mine, theirs, shift)) is not None]
    different = min(fit.different_ratio for fit in found)
    if different > _MOST_DIFFERENT_RATIO:
        return None
    found = [fit for fit in found if fit.different_ratio <= different + _MOST_DIFFERENT_RATIO / 10]
    spread = min(fit.spread_ns for fit in found)
    found = [fit for fit in found if fit.spread_ns <= _SAME_SPREAD_RATIO * spread + _SAME_SPREAD_NS]
    return min(found, key=_preference).shift


def _preference(fit: _Fit) -> tuple[float, ...]:
    return -round(fit.same_step_ratio, 1), round(abs(fit.offset_ns) / _SAME_SPREAD_NS), fit.spread_ns, abs(fit.shift)


def _first_common_step(mine: _Sequence, theirs: _Sequence) -> int:
    """Return the shift that aligns the first collectives of the first common step, 0 without one."""
    common = np.intersect1d(mine.step, theirs.step)
    common = common[common >= 0]
    return int((mine.step == common[0]).argmax() - (theirs.step == common[0]).argmax()) if len(common) else 0


def _fit(mine: _Sequence, theirs: _Sequence, shift: int) -> _Fit | None:
    """Return how well the sequences fit, None if they overlap by less than half of the shorter."""
    first, last = max(shift, 0), min(len(mine.end), len(theirs.end) + shift)
    if 2 * (last - first) < min(len(mine.end), len(theirs.end)):
        return None
    a, b = slice(first, last), slice(first - shift, last - shift)
    apart = theirs.end[b] - mine.end[a]
    offset = float(np.median(apart))
    enough = last - first >= _LEAST_FOR_A_SPREAD
    return _Fit(
        shift=shift,
        different_ratio=float((mine.token[a] != theirs.token[b]).mean()),
        same_step_ratio=float(((mine.step[a] == theirs.step[b]) & (mine.step[a] >= 0)).mean()),
        spread_ns=float(np.median(np.abs(apart - offset))) if enough else math.inf,
        offset_ns=offset,
    )


def _matched(group: str, description: str, parts: dict[int, pd.DataFrame], places: dict[int, Rows]) -> MatchedCollectives:
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
    return MatchedCollectives(
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
