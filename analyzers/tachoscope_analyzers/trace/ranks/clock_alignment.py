"""The clocks of the ranks, aligned by what they do together: a collective ends at about the same time on all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.events.collective_names import SYNCHRONOUS
from tachoscope_analyzers.trace.ranks.collective_matching import ABSENT, MatchedCollectives

if TYPE_CHECKING:
    import pandas as pd

Rows = npt.NDArray[np.int64]

_SIGMA_OF_MAD = 1.4826
"""Standard deviation over median absolute deviation of a normal distribution."""
_MICROSECOND = 1_000
_LEAST_COLLECTIVES = 3
UNKNOWN_ERROR = 1 << 60
"""Error in ns of a clock that nothing could be compared with: no wait is above it."""


class Offsets(msgspec.Struct, frozen=True):
    """How far each rank's clock is ahead of the group's, and by how much one collective may be off from that: ns, shape (R,)."""

    offset: Rows
    error: Rows
    collectives: Rows


def group_offsets(group: MatchedCollectives) -> Offsets:
    """Return the clocks of a group's ranks against that of one of them.

    The offset is the median, over the collectives that all must join, of the rank's end less the median end of all ranks; the error
    is the scatter about it (1.4826 times the median absolute deviation), at least the resolution of the time stamps, and not known
    with fewer than three collectives. So it holds drift, and whatever else keeps collectives from ending together, but not what
    shifts all ends of a rank by the same amount.
    """
    synchronous = np.array([kind in SYNCHRONOUS for kind in group.kind], dtype=bool)
    usable = group.present & synchronous
    ranks = len(group.ranks)
    if not usable.any():
        return Offsets(np.zeros(ranks, dtype=np.int64), np.full(ranks, UNKNOWN_ERROR), np.zeros(ranks, dtype=np.int64))
    base = int(group.end[usable].min())
    ends = np.where(usable, (group.end - base).astype(np.float64), np.nan)[:, np.asarray(usable.sum(axis=0) > 1)]
    offset = np.zeros(ranks)
    if ends.shape[1]:
        for _ in range(3):  # the first centre is moved by clocks that are far off; it settles at once
            centre = np.nanmedian(ends - offset[:, None], axis=0)
            offset = _medians(ends - centre)
    scatter = offset
    if ends.shape[1]:
        aligned = ends - offset[:, None]
        centre = np.nanmedian(aligned, axis=0)
        scatter = _medians(np.abs(aligned - centre))
    resolution = _MICROSECOND if not (group.end[usable] % _MICROSECOND).any() else 1
    count = (~np.isnan(ends)).sum(axis=1)
    error = np.where(count >= _LEAST_COLLECTIVES, np.maximum(np.rint(_SIGMA_OF_MAD * scatter), resolution), UNKNOWN_ERROR)
    offset -= offset[count.argmax()]  # so that halves of nanoseconds, of a median of two, fall away
    return Offsets(np.rint(offset).astype(np.int64), error.astype(np.int64), count)


def _medians(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the median of each row without NaNs, 0 for an empty row."""
    empty = np.asarray(np.isnan(values).all(axis=1), dtype=bool)
    return np.where(empty, 0.0, np.nanmedian(np.where(empty[:, None], 0.0, values), axis=1))


class Clock(msgspec.Struct, frozen=True):
    """A rank's clock against that of the lowest rank.

    Attributes:
        offset_ns: to be subtracted from the rank's times. error_ns: of the whole way, -1 where no collective connects the rank with
            the lowest. collectives: by how many it was compared.
    """

    offset_ns: int
    error_ns: int
    collectives: int


def clock_table(clocks: dict[int, Clock]) -> pd.DataFrame:
    """Return a row for each rank: rank, and the attributes of its `Clock`."""
    import pandas as pd  # a third of a second, which a report on one rank does not need

    rows = [(rank, one.offset_ns, one.error_ns, one.collectives) for rank, one in clocks.items()]
    return pd.DataFrame(rows, columns=["rank", "offset_ns", "error_ns", "collectives"])


def clock_rows(groups: list[MatchedCollectives], offsets: list[Offsets], ranks: list[int]) -> dict[int, Clock]:
    """Return every rank's clock against that of the lowest rank, along the groups that connect them."""
    known: dict[int, tuple[int, float, int]] = {ranks[0]: (0, 0.0, 0)} if ranks else {}
    order = sorted(range(len(groups)), key=lambda place: (-len(groups[place].ranks), -groups[place].start.shape[1]))
    before = -1
    while before < len(known):
        before = len(known)
        for place in order:
            _spread(groups[place], offsets[place], known)
    found = {}
    for rank in ranks:
        offset, variance, count = known.get(rank, (0, -1.0, 0))
        found[rank] = Clock(offset, -1 if variance < 0 else round(variance**0.5), count)
    return found


def _spread(group: MatchedCollectives, offsets: Offsets, known: dict[int, tuple[int, float, int]]) -> None:
    members = group.ranks.tolist()
    usable = [place for place, rank in enumerate(members) if offsets.error[place] < UNKNOWN_ERROR]
    anchor = next((place for place in usable if members[place] in known), None)
    if anchor is None:
        return
    start, variance, count = known[members[anchor]]
    if count == 0:
        known[members[anchor]] = (start, variance, int(offsets.collectives[anchor]))
    for place in usable:
        if members[place] not in known:
            apart = int(offsets.offset[place] - offsets.offset[anchor])
            errors = float(offsets.error[place]) ** 2 + float(offsets.error[anchor]) ** 2
            known[members[place]] = (start + apart, variance + errors, int(offsets.collectives[place]))


def completed(group: MatchedCollectives, offsets: Offsets, clocks: dict[int, Clock]) -> Offsets:
    """Return a group's offsets; where it has too few collectives to compare clocks, those that other groups tell (`clock_rows`)."""
    if (offsets.error < UNKNOWN_ERROR).sum() > 1:
        return offsets
    known = [clocks[rank] for rank in group.ranks.tolist()]
    error = np.array([one.error_ns for one in known], dtype=np.int64)
    offset, count = (np.array([getattr(one, name) for one in known], dtype=np.int64) for name in ("offset_ns", "collectives"))
    return Offsets(offset, np.where(error < 0, UNKNOWN_ERROR, np.maximum(error, 1)), count)


def aligned(group: MatchedCollectives, offsets: Offsets) -> Rows:
    """Return the starts on the group's common clock, shape (R, N), `ABSENT` where absent."""
    return np.where(group.present, group.start - offsets.offset[:, None], ABSENT)
