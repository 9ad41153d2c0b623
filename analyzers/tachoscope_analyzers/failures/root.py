"""Which end of an attempt's ranks was the root, and which followed from it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from tachoscope_analyzers.attempts.hangs import Hang
from tachoscope_analyzers.failures.rank_ends import AttemptEnds, RankEnd
from tachoscope_analyzers.failures.secondary_errors import awaited_ranks, is_timeout, was_told_to_end

_TOGETHER_SECONDS = 5.0
"""Ranks that fail with the same error within this time fail by themselves: each does the same as the others."""


@dataclass(frozen=True, slots=True)
class Root:
    """The first failure of an attempt. `same`, `cascade`: other ends, in order of time, each rank once."""

    end: RankEnd
    same: list[RankEnd]
    cascade: list[RankEnd]


def root_of(found: AttemptEnds, *, known_templates: Set[tuple[str, str, str]], hang: Hang | None) -> Root | None:
    """Return the root of an attempt that failed; None: nothing is known of any end.

    A rank's own failure comes before those that say that another rank is the cause, whatever their times: these are noticed at
    once, and an exception ends its process only after its clean-up. Of several the earliest is the root. Where no rank failed by
    itself, it is the rank that was interrupted before the others lost it, that left while they needed it, or for which they wait.

    Args:
        known_templates: of exceptions of threads that attempts before had, which did not fail of them.
        hang: that the attempt ended in; None: none.
    """
    hung = hang_end(hang) if hang is not None else None
    before_teardown = [
        end
        for end in found.ends
        if found.terminated_at is None or end.rank not in found.terminated or end.at <= found.terminated_at
    ]
    primary = [end for end in before_teardown if end.nature == "primary"]
    threads = [end for end in before_teardown if end.nature == "thread" and end.template not in known_templates]
    secondary = [end for end in found.ends if end.nature == "secondary"]
    root = (
        _first_primary(found, primary, hang)
        or next(iter(threads), None)
        or next((end for end in secondary[:1] if hang is None and was_told_to_end(end.exception)), None)
        or _left_early(found, secondary)
        or _awaited(found, secondary, hung)
        or next(iter(secondary), None)
    )
    if root is None:
        return None
    return Root(root, *_others(root, found))


def _first_primary(found: AttemptEnds, primary: Sequence[RankEnd], hang: Hang | None) -> RankEnd | None:
    """Return the earliest own failure; of a job that had hung before and was then ended by a signal or a watchdog, the hang."""
    first = next(iter(primary), None)
    if first is not None and first.unclear:
        gone_before = (end for end in primary if end.since is not None and end.since <= first.at)
        first = next(gone_before, first)  # it may have said that it lost this one, which was found gone a moment later
    if first is None or not (first.cause == "killed" or first.by_thread):
        return first
    before = hang if hang is not None and hang.since < first.at else None
    named = hang_end(before) if before is not None else None
    if named is not None:
        return _where_it_stood(found, named)
    alike = [
        end for end in primary if (end.cause, end.by_thread, end.template[:2]) == (first.cause, first.by_thread, first.template[:2])
    ]
    is_timer = first.cause == "hang"
    if before is None and not is_timer and not (first.by_thread and len(alike) > 1):
        return first  # one thread alone may have ended it for a reason of its own
    first = replace(first, location=first.line[0], function=first.line[1]) if is_timer else first
    apart = _apart(found, alike, "the other ranks waited for it")
    is_own_fault = apart is not None and apart.rank == first.rank and bool(first.location) and not first.by_thread
    return first if apart is None or is_own_fault else apart


def _apart(found: AttemptEnds, ends: Sequence[RankEnd], words: str) -> RankEnd | None:
    """Return the only rank that stood where no other did when all were ended or gave up, as a hang; None: it is not clear which.

    Of two ranks at different lines, the one that did not wait for the other.
    """
    at = {end.rank: end for end in (*found.terminated.values(), *ends) if end.line[0]}
    waiting = {end.line for end in at.values() if end.waits or end.nature == "secondary"}
    lines = [end.line for end in at.values()]
    order = sorted((end.waits or end.line in waiting, lines.count(end.line), end.rank) for end in at.values())
    if len(order) < 2 or order[0][:2] == order[1][:2]:
        return None
    end = at[order[0][2]]
    location, function = end.line
    since = min(one.at for one in ends)
    return RankEnd(end.rank, since, "primary", "hang", end.host, message=words, location=location, function=function)


def _where_it_stood(found: AttemptEnds, hang: RankEnd) -> RankEnd:
    """Return a hang with the line at which its rank was when it was ended, or gave up, where that is known."""
    own = [*filter(None, [found.terminated.get(hang.rank)]), *(end for end in found.ends if end.rank == hang.rank)]
    location, function = next((end.line for end in own if end.line[0]), (hang.location, hang.function))
    return replace(hang, location=location, function=function)


def _left_early(found: AttemptEnds, secondary: Sequence[RankEnd]) -> RankEnd | None:
    """Return the rank that ended in order while others needed it, whose end may be seen after they lost it."""
    failed = {end.rank for end in secondary}
    left = (end for end in found.ends if end.nature == "left" and end.rank not in failed)
    return next(left, None) if secondary else None


def _awaited(found: AttemptEnds, secondary: Sequence[RankEnd], hang: RankEnd | None) -> RankEnd | None:
    """Return the rank for which the others wait: the one that they name, that watchers saw hang, or one that did not give up."""
    named = [rank for end in secondary for rank in awaited_ranks(end.message)]
    if named:
        return _standing_still(found, named[0], secondary[0].at)
    silent = found.hosts.keys() - {end.rank for end in found.ends}
    if secondary and silent and (hang is None or hang.rank not in silent):
        return _standing_still(found, min(silent, key=lambda rank: _waits_too(found, rank, secondary)), secondary[0].at)
    if hang is None:
        gave_up = any(is_timeout(end.message) for end in secondary)
        return _apart(found, secondary, "it waited at another line than the other ranks") if gave_up else None
    handled = found.handled.get(hang.rank)
    return replace(handled, nature="primary") if handled is not None else _where_it_stood(found, hang)


def _waits_too(found: AttemptEnds, rank: int, secondary: Sequence[RankEnd]) -> tuple[bool, bool, int]:
    """Return what is less of the rank for which others wait: one that stood where others gave up waits as well."""
    terminated = found.terminated.get(rank)
    at_same = terminated is None or terminated.location in {"", *(end.location for end in secondary)}
    return rank not in found.handled, at_same, rank


def _standing_still(found: AttemptEnds, rank: int, at: float) -> RankEnd:
    terminated, handled = found.terminated.get(rank), found.handled.get(rank)
    if handled is not None and handled.at <= at:
        return replace(handled, nature="primary")
    words, host = "the other ranks waited for it", found.hosts.get(rank, "")
    if terminated is None:
        lost = bool(host) and bool(found.heard_hosts) and host not in found.heard_hosts
        return RankEnd(rank, at, "primary", "host_lost" if lost else "hang", host, message=words)
    return replace(terminated, at=at, nature="primary", cause="hang", message=words)


def _others(root: RankEnd, found: AttemptEnds) -> tuple[list[RankEnd], list[RankEnd]]:
    """Return the first end of each other rank: those with the same error by themselves, and those that followed."""
    firsts: dict[int, RankEnd] = {}
    for end in found.ends:
        if end.rank != root.rank and end.nature != "left":
            firsts.setdefault(end.rank, end)
    same = [end for end in firsts.values() if _is_same(end, root)]
    rest = [end for end in firsts.values() if not _is_same(end, root)]
    rest += [end for rank, end in found.terminated.items() if rank != root.rank and rank not in firsts]
    return same, sorted(rest, key=lambda end: end.at)


def _is_same(end: RankEnd, root: RankEnd) -> bool:
    alike = end.nature == "primary" and end.template == root.template and bool(end.exception)
    return alike and abs(end.at - root.at) <= _TOGETHER_SECONDS


def hang_end(hang: Hang) -> RankEnd | None:
    """Return the rank that hung as an end at the time of the last step; None: which rank it was is not known."""
    if hang.process is None:
        return None
    location, _, function = hang.where.partition(" ")
    return RankEnd(
        hang.process.rank,
        hang.since,
        "primary",
        "hang",
        hang.process.host,
        "",
        f"no step was finished; {hang.why}",
        location,
        function,
    )
