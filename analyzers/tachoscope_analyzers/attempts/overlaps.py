"""Attempts that run at once, as when one job name is used twice: neither is the end of the other, nor its recovery.

Two attempts ran at once if two processes were the same rank of the job at the same time: one finished steps after the other had
begun to train. All that is judged of several attempts asks here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tachoscope_analyzers.attempts.maintenance import Interval
from tachoscope_analyzers.attempts.processes import Clock, RankProcess


def first_sign(process: RankProcess) -> float:
    """Return when a process did the first thing that is known of it, or ended."""
    first = [] if process.first_begin is None else [process.first_begin]
    return min([*first, *(start for start, _ in process.restores), process.end])


def overlap(one: Sequence[RankProcess], other: Sequence[RankProcess], clock: Clock) -> Interval | None:
    """Return when two attempts ran at once, given their processes; None: they did not, as far as clocks can tell."""
    found = [part for a, b in _same_rank(one, other) if (part := _trained_at_once(a, b, clock)) is not None]
    return (min(start for start, _ in found), max(end for _, end in found)) if found else None


def outlived(one: Sequence[RankProcess], other: Sequence[RankProcess], clock: Clock) -> bool:
    """Return whether an attempt wrote something after a later one had begun: then that other is not a sign of its end."""
    # One that came to no step yet has no better sign of its begin than its start.
    return any(a.last > (first_sign(b) if b.steps else b.start) + clock.apart_seconds(a, b) for a, b in _same_rank(one, other))


def non_overlapping_groups(found: Sequence[RankProcess], clock: Clock) -> list[list[RankProcess]]:
    """Return processes in as few groups as it takes for attempts of a group to run one after the other, in order of start."""
    by_attempt: dict[tuple[int, int], list[RankProcess]] = {}
    for process in found:
        by_attempt.setdefault((process.attempt, process.generation), []).append(process)
    groups: list[list[list[RankProcess]]] = []
    for members in sorted(by_attempt.values(), key=lambda row: min(process.start for process in row)):
        group = next((one for one in groups if not any(overlap(other, members, clock) for other in one)), None)
        if group is None:
            groups.append([members])
        else:
            group.append(members)
    return [[process for members in group for process in members] for group in groups]


def _same_rank(one: Sequence[RankProcess], other: Sequence[RankProcess]) -> Iterator[tuple[RankProcess, RankProcess]]:
    if max(a.last for a in one) <= min(b.start for b in other) or max(b.last for b in other) <= min(a.start for a in one):
        return iter(())  # the usual case, cheaply
    by_rank = {process.rank: process for process in one}
    return ((by_rank[process.rank], process) for process in other if process.rank in by_rank)


def _trained_at_once(one: RankProcess, other: RankProcess, clock: Clock) -> Interval | None:
    if one.last_step_end is None or other.last_step_end is None:
        return None
    since, until = max(first_sign(one), first_sign(other)), min(one.last_step_end, other.last_step_end)
    return (since, until) if until - since > clock.apart_seconds(one, other) else None
