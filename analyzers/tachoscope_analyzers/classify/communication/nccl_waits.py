"""Waiting for a late rank against moving data, in collectives that every rank told of: NCCL's Inspector by way of the node agents.

All ranks leave a collective together, and each is in it from when it came. So the rank that was in it for the shortest came last
and waited for nobody: its time is the transfer, and what another was in it for longer is its waiting for the last. Only durations
are compared, each of one device's own clock: how well the clocks of hosts agree has no part in it. That all leave together is not
quite so in a broadcast or a reduce, where a rank may be done once its own part is.

Knows nothing of steps: what the probe saw of the training thread is looked at by `slow_link` and `network_degraded`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tachoscope_analyzers.findings.evidence import measured
from tachoscope_core.records.records import CollectiveDone
from tachoscope_core.report.report import Evidence


@dataclass(frozen=True, slots=True)
class CollectiveWaits:
    """Calls of which all ranks told, by what their time went to. Waiting and transfer of a rank sum to its seconds in them.

    Attributes:
        calls: compared. left_out: of which not every rank told; nothing is known of them, and they are in no sum.
        wait_seconds, transfer_seconds: sums over the calls, by global rank. last: calls that waited for this rank.
        caused_seconds: what all others waited in the calls for which this rank came last.
    """

    calls: int = 0
    left_out: int = 0
    wait_seconds: dict[int, float] = field(default_factory=dict)
    transfer_seconds: dict[int, float] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    caused_seconds: dict[int, float] = field(default_factory=dict)

    @property
    def wait_share(self) -> float | None:
        """Part of all ranks' time in these calls that was waiting; None: no call could be compared."""
        waited, moved = sum(self.wait_seconds.values()), sum(self.transfer_seconds.values())
        return waited / (waited + moved) if waited + moved > 0 else None


def collective_waits(rows: Iterable[CollectiveDone]) -> CollectiveWaits:
    """Split the calls that NCCL's Inspector told of, whichever node's agent recorded them. Sends and receives are left alone.

    A rank that told twice of a call, of another attempt perhaps, is compared with none: the communicator's hash may be the same.
    """
    calls: dict[tuple[int, str, str, int], list[CollectiveDone]] = defaultdict(list)
    for row in rows:
        if row.communicator and row.sequence >= 0 and row.peer < 0 and row.group_size > 1:
            calls[row.attempt, row.communicator, row.collective, row.sequence].append(row)
    waited: Counter[int] = Counter()
    moved: Counter[int] = Counter()
    last: Counter[int] = Counter()
    caused: Counter[int] = Counter()
    compared = 0
    for call in calls.values():
        if len({row.rank for row in call}) != len(call) or len(call) != call[0].group_size:
            continue
        compared += 1
        latest = min(call, key=lambda row: row.seconds)
        last[latest.rank] += 1
        for row in call:
            moved[row.rank] += latest.seconds  # type: ignore[assignment]
            waited[row.rank] += row.seconds - latest.seconds  # type: ignore[assignment]
            caused[latest.rank] += row.seconds - latest.seconds  # type: ignore[assignment]
    return CollectiveWaits(compared, len(calls) - compared, dict(waited), dict(moved), dict(last), dict(caused))


def evidence(rows: Iterable[CollectiveDone], attempt: int) -> list[Evidence]:
    """Return what part of NCCL's collectives of an attempt was waiting, and for whom most; none where nothing can be compared."""
    found = collective_waits(row for row in rows if row.attempt == attempt)
    if found.wait_share is None:
        return []
    worst = max(found.caused_seconds, key=found.caused_seconds.__getitem__)
    most = f"; most of it for rank {worst}, which came last in {found.last[worst]}" if found.caused_seconds[worst] > 0 else ""
    return [
        measured(
            "waiting for a later rank, part of the ranks' time in NCCL's collectives",
            found.wait_share,
            "ratio",
            f"{found.calls} collectives that NCCL's Inspector reported on all their ranks{most}",
        )
    ]
