"""Wait and transfer of each collective, and which rank the others waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.events.collective_names import bus_factor
from tachoscope_analyzers.trace.events.intervals import Intervals, covered
from tachoscope_analyzers.trace.ranks.clock_alignment import Offsets, aligned
from tachoscope_analyzers.trace.ranks.collective_matching import ABSENT, MatchedCollectives

if TYPE_CHECKING:
    import pandas as pd

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lateness:
    """Who waited for whom in the collectives of one group: R ranks and N collectives.

    Attributes:
        wait: ns that each rank waited for the last one, shape (R, N), 0 where the clocks are too uncertain to say so or the rank is
            absent; what is left of its duration is transfer.
        added_wait: the part of `wait` that cost the rank time: it computed nothing meanwhile, and did not wait for an earlier
            collective of the group already.
        last: position of the rank that arrived last, shape (N,). delay: ns by which the next to last waited for it, 0 where that
            is not more than `error`. error: of the comparison of these two, ns.
        added_delay: what would be gained if this one rank came in time: the part of `delay` in which the next to last computed
            nothing, and that is not the delay of an earlier collective already.
        shortest: position of the rank with the shortest duration: it waited least, so it came last, whatever the clocks say.
    """

    group: MatchedCollectives
    wait: Rows
    added_wait: Rows
    last: Rows
    delay: Rows
    added_delay: Rows
    error: Rows
    shortest: Rows


def lateness(group: MatchedCollectives, offsets: Offsets, exposed: Mapping[int, Intervals]) -> Lateness:
    """Return who waited for whom: a rank waits from its arrival until the last one's, at most as long as its collective took.

    Args:
        exposed: by rank, when any collective ran while the rank computed nothing (`RankSummary.exposed`). A collective may wait in
            a thread or on a stream of its own while the rank still computes; that costs nothing.
    """
    start = aligned(group, offsets)
    columns = np.arange(start.shape[1])
    last = start.argmax(axis=0)
    without = start.copy()
    without[last, columns] = ABSENT
    second = without.argmax(axis=0)
    latest = start[last, columns]
    duration = np.where(group.present, group.duration, 0)
    apart = np.where(group.present, latest - start, 0)
    error = np.minimum(offsets.error[:, None] + offsets.error[last], 1 << 61)
    wait = np.where(apart > error, np.minimum(apart, duration), 0)
    own = np.where(group.present, group.duration, np.iinfo(np.int64).max)
    delay = wait[second, columns]
    return Lateness(
        group=group,
        wait=wait,
        added_wait=_exposed(group, offsets, exposed, *_added(start, start + wait)),
        last=last,
        delay=delay,
        added_delay=_exposed(group, offsets, exposed, *_added(latest - delay, latest))[second, columns],
        error=error[second, columns],
        shortest=own.argmin(axis=0),
    )


def _added(start: Rows, end: Rows) -> tuple[Rows, Rows]:
    """Return the part of each span that no earlier one covers along the last axis; sorted by start."""
    reach = np.maximum.accumulate(end, axis=-1)
    before = np.concatenate([start[..., :1], reach[..., :-1]], axis=-1)
    return np.minimum(np.maximum(start, before), end), end


def _exposed(group: MatchedCollectives, offsets: Offsets, exposed: Mapping[int, Intervals], start: Rows, end: Rows) -> Rows:
    """Return how much of spans on the common clock each rank computed nothing in, ns, shape (R, N).

    Args:
        start, end: shape (R, N), or (N,) for the same spans on all ranks.
    """
    spans = np.broadcast_to(start, group.start.shape), np.broadcast_to(end, group.start.shape)
    found = np.zeros(group.start.shape, dtype=np.int64)
    for place, rank in enumerate(group.ranks.tolist()):
        here, offset = group.present[place], offsets.offset[place]
        found[place, here] = covered(exposed[rank], spans[0][place, here] + offset, spans[1][place, here] + offset)
    return found


def collective_table(found: Lateness, group_number: int) -> pd.DataFrame:
    """Return one row for each collective.

    Columns: group, group_description, group_number (of the process group within the job), kind, step, bytes, ranks (that recorded
    it), start_ns (Unix time on the clock of the first to arrive), last_rank, delay_ns, error_ns (-1: the clocks could not be
    compared), wait_mean_ns (of the others), wait_max_ns, added_delay_ns and added_wait_ns (of delay and mean wait, the part in
    which nothing was computed and that is not in an earlier collective of the group already, so that they can be summed),
    transfer_ns (median over the ranks), shortest_rank, bus_bandwidth_gb_per_s (of the transfer alone; NaN where bytes or size are
    not known, or not all ranks are here).
    """
    import pandas as pd  # a third of a second, which a report on one rank does not need

    group = found.group
    here = group.present
    count = here.sum(axis=0)
    transfer = np.where(here, group.duration - found.wait, np.nan)
    typical = np.nanmedian(transfer, axis=0) if transfer.shape[1] else np.zeros(0)
    factors = np.array([bus_factor(kind, group.size) for kind in group.kind], dtype=np.float64)
    known = (group.bytes >= 0) & (typical > 0) & (count == group.size)
    return pd.DataFrame(
        {
            "group": group.group,
            "group_description": group.description,
            "group_number": group_number,
            "kind": group.kind,
            "step": group.step,
            "bytes": group.bytes,
            "ranks": count,
            "start_ns": np.where(here, group.start, np.iinfo(np.int64).max).min(axis=0),
            "last_rank": group.ranks[found.last],
            "delay_ns": found.delay,
            "error_ns": np.where(found.error >= 1 << 60, -1, found.error),
            "wait_mean_ns": np.rint(found.wait.sum(axis=0) / np.maximum(count - 1, 1)).astype(np.int64),
            "wait_max_ns": found.wait.max(axis=0),
            "added_delay_ns": found.added_delay,
            "added_wait_ns": np.rint(found.added_wait.sum(axis=0) / np.maximum(count - 1, 1)).astype(np.int64),
            "transfer_ns": np.rint(typical).astype(np.int64),
            "shortest_rank": group.ranks[found.shortest],
            "bus_bandwidth_gb_per_s": np.where(known, group.bytes / np.maximum(typical, 1), np.nan) * factors,
        }
    )


def wait_table(found: Lateness, group_number: int) -> pd.DataFrame:
    """Return one row for each rank and kind: wait_ns + transfer_ns = duration_ns, exactly.

    Columns: rank, group, group_description, group_number, kind, count, duration_ns, wait_ns, transfer_ns, exposed_ns, added_wait_ns
    (what of wait_ns cost the rank time, see `Lateness.added_wait`).
    """
    import pandas as pd  # a third of a second, which a report on one rank does not need

    group = found.group
    rows = []
    for kind in sorted(set(group.kind.tolist())):
        mine = group.kind == kind
        for place, rank in enumerate(group.ranks.tolist()):
            here = group.present[place] & mine
            duration, wait = int(group.duration[place, here].sum()), int(found.wait[place, here].sum())
            exposed = int(group.exposed[place, here].sum())
            added = int(found.added_wait[place, here].sum())
            rows.append(
                (
                    rank,
                    group.group,
                    group.description,
                    group_number,
                    kind,
                    int(here.sum()),
                    duration,
                    wait,
                    duration - wait,
                    exposed,
                    added,
                )
            )
    return pd.DataFrame(rows, columns=WAIT_COLUMNS)


WAIT_COLUMNS = [
    "rank",
    "group",
    "group_description",
    "group_number",
    "kind",
    "count",
    "duration_ns",
    "wait_ns",
    "transfer_ns",
    "exposed_ns",
    "added_wait_ns",
]
COLLECTIVE_COLUMNS = [
    "group",
    "group_description",
    "group_number",
    "kind",
    "step",
    "bytes",
    "ranks",
    "start_ns",
    "last_rank",
    "delay_ns",
    "error_ns",
    "wait_mean_ns",
    "wait_max_ns",
    "added_delay_ns",
    "added_wait_ns",
    "transfer_ns",
    "shortest_rank",
    "bus_bandwidth_gb_per_s",
]
