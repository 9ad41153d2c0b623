"""What is missing from a job's traces, and so cannot be concluded from them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from tachoscope_analyzers.trace.ranks.clock_alignment import Clock
from tachoscope_analyzers.trace.ranks.collective_matching import MatchedCollectives
from tachoscope_analyzers.trace.ranks.rank_summary import MOST_STEPS, RankSummary

COLUMNS = ["rank", "file", "problem", "detail"]
_MOST_LISTED = 10
Row = tuple[int, str, str, str]


def job_quality(
    summaries: dict[int, RankSummary],
    *,
    groups: list[MatchedCollectives],
    strangers: list[tuple[str, tuple[int, ...]]],
    clocks: dict[int, Clock],
    failed: dict[Path, str],
) -> list[Row]:
    """Return a row of `COLUMNS` for each problem: rank (-1: of the whole job), file, problem (a word), detail (a sentence)."""
    rows: list[Row] = [(-1, str(path), "unreadable", reason) for path, reason in sorted(failed.items())]
    for rank, one in summaries.items():
        rows += _of_rank(rank, one)
    rows += _missing(summaries)
    if len(summaries) > 1:
        rows += _of_job(summaries, {rank: one.offset_ns for rank, one in clocks.items()})
        rows += _of_groups(groups, strangers)
        apart = [rank for rank, one in clocks.items() if one.error_ns < 0]
        if apart:
            rows.append(
                (-1, "", "clocks_not_aligned", f"no collective ties the clocks of {_ranks(apart)} to that of the first rank")
            )
    return rows


def _of_rank(rank: int, one: RankSummary) -> Iterable[Row]:
    file = str(one.path)
    if one.rank is None:
        yield rank, file, "no_rank", f"the trace does not tell its rank; by the order of the files it is counted as {rank}"
    if one.quality.cut:
        yield rank, file, "cut", f"the file ends too early; {one.quality.cut_bytes} bytes at its end were left out"
    if not one.events:
        yield rank, file, "empty", "the trace contains no event"
    if one.collectives > len(one.arrivals):
        yield (
            rank,
            file,
            "collectives_left_out",
            f"compared over ranks: the first {len(one.arrivals)} of {one.collectives} collectives",
        )
    if len(one.steps) == MOST_STEPS:
        yield rank, file, "steps_left_out", f"only the first {MOST_STEPS} steps are kept"


def ranks_missing(summaries: dict[int, RankSummary]) -> int:
    """Return how many ranks of the job are not here, 0 where the traces do not tell, or do not agree, how many there are."""
    worlds = {one.world_size for one in summaries.values() if one.world_size}
    return max(worlds.pop() - len(summaries), 0) if len(worlds) == 1 else 0


def _missing(summaries: dict[int, RankSummary]) -> Iterable[Row]:
    count = ranks_missing(summaries)
    if count:
        world = len(summaries) + count
        first = list(islice((rank for rank in range(world) if rank not in summaries), min(count, _MOST_LISTED + 1)))
        here = f"{len(summaries)} of {world} ranks {'is' if len(summaries) == 1 else 'are'} here"
        yield -1, "", "missing_ranks", f"{here}, without {_ranks(first, count)}"


def _of_job(summaries: dict[int, RankSummary], offsets: dict[int, int]) -> Iterable[Row]:
    worlds = sorted({one.world_size for one in summaries.values() if one.world_size})
    if len(worlds) > 1:
        yield (
            -1,
            "",
            "several_world_sizes",
            f"the traces name different numbers of ranks ({' and '.join(map(str, worlds))}): are they of one job?",
        )
    starts = [one.start_ns - offsets[rank] for rank, one in summaries.items()]
    ends = [one.end_ns - offsets[rank] for rank, one in summaries.items()]
    if max(starts) > min(ends):
        yield -1, "", "no_common_time", "by their clocks the traces were not all recorded at the same time"
    twins: dict[str, list[int]] = {}
    for rank, one in summaries.items():
        twins.setdefault(one.digest, []).append(rank)
    for same in twins.values():
        if len(same) > 1:
            yield -1, "", "same_content", f"the files of {_ranks(same)} are the same"


def _of_groups(groups: list[MatchedCollectives], strangers: list[tuple[str, tuple[int, ...]]]) -> Iterable[Row]:
    if not groups:
        yield (
            -1,
            "",
            "nothing_in_common",
            "no collective was found on more than one rank: clocks, waits and late ranks are not known",
        )
    for name, ranks in strangers:
        yield -1, "", "not_matched", f"the collectives of group {name!r} on {_ranks(list(ranks))} are not those of the other ranks"
    for group in groups:
        if group.size > len(group.ranks):
            name = group.description or group.group
            yield -1, "", "missing_in_group", f"group {name!r} has {group.size} ranks, {len(group.ranks)} are here"


def _ranks(ranks: list[int], count: int = 0) -> str:
    count = count or len(ranks)
    listed = ", ".join(map(str, ranks[:_MOST_LISTED]))
    more = f" and {count - _MOST_LISTED} more" if count > _MOST_LISTED else ""
    return f"{'rank' if count == 1 else 'ranks'} {listed}{more}"
