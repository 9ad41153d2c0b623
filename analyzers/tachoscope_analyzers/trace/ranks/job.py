"""Many ranks are one job: each is analysed on its own, and what they leave behind is put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from tachoscope_analyzers.trace.analyses.operator_profile import TraceProfile, merged
from tachoscope_analyzers.trace.ranks.clock_alignment import clocks, completed, group_offsets
from tachoscope_analyzers.trace.ranks.collective_matching import match
from tachoscope_analyzers.trace.ranks.executor import executor_for, usable_cores
from tachoscope_analyzers.trace.ranks.job_quality import job_quality
from tachoscope_analyzers.trace.ranks.lateness import COLLECTIVE_COLUMNS, WAIT_COLUMNS, collective_table, lateness, wait_table
from tachoscope_analyzers.trace.ranks.rank_summary import RankSummary, SummaryOptions, summarise
from tachoscope_analyzers.trace.ranks.stragglers import stragglers
from tachoscope_analyzers.trace.reading.trace_files import labels, recorder, trace_files
from tachoscope_core.errors import TachoscopeError

Progress = Callable[[int, int], None]
"""Called with how many files were analysed, and all there are."""

MOST_COLLECTIVES = 1 << 19
"""Of a whole job, some 60 bytes each: more ranks leave fewer collectives each, so that memory stays as it is."""
MOST_BYTES_FOR_THREADS, MOST_BYTES_ON_TWO_CORES = 16 << 20, 64 << 20
"""Of all files of a job as they lie on the disk. A process has to begin and import, some 0.7 processor seconds and 100 MiB;
threads wait for one another in the part of the work that needs the interpreter's lock, which weighs more with more cores."""
_LEAST_OF_A_RANK = 256
_SUMMARY_ONLY = SummaryOptions(judged=False)


@dataclass(frozen=True)
class JobTraces:
    """A job: its ranks and what only shows when they are compared.

    Attributes:
        summaries: by rank, rising. quality: problem rows (rank, file, problem, detail), empty when all is well.
        ranks: one row for each: rank, file, device, events, steps, step_mean_ns, collectives, communication_ns, wait_ns,
            exposed_ns, exposed_wait_ns (what of the exposed time is waiting for later ranks; all four of the whole trace),
            own_per_step_ns (step less the exposed part of collectives: what the rank itself takes).
        clocks, collectives, waits, stragglers: see `clock_alignment.clocks`, `lateness.collective_table`, `lateness.wait_table`,
            `stragglers.stragglers`.
        dimensions: exposed communication for each description of a process group (dp, tp, ...) and kind: group_description, kind,
            ranks, count and bytes per rank, exposed_per_step_ns (mean over ranks), exposed_of_step_ratio, most_exposed_rank,
            most_exposed_per_step_ns, bus_bandwidth_median_gb_per_s.
        sums: of all ranks, to compare the job by (`diff.diff`), where they were wanted.
    """

    summaries: dict[int, RankSummary]
    quality: pd.DataFrame
    ranks: pd.DataFrame
    clocks: pd.DataFrame
    collectives: pd.DataFrame
    waits: pd.DataFrame
    stragglers: pd.DataFrame
    dimensions: pd.DataFrame
    sums: TraceProfile | None = None


def read_job(
    inputs: Iterable[Path | str],
    *,
    executor: str | Executor = "local",
    progress: Progress | None = None,
    wanted: SummaryOptions = _SUMMARY_ONLY,
) -> JobTraces:
    """Analyse the traces of a job: files, directories and patterns.

    Args:
        inputs: see `trace_files`. What only stands in a directory and is not a trace is left out, with a row in `quality`.
        executor: `local` (threads, or processes of this machine where the files are large enough), `dask://host:port`, or any
            `concurrent.futures.Executor`.
        progress: called after each file.
        wanted: what is worked out for each rank; of collectives, at most so many are kept as memory allows.

    Raises:
        TachoscopeError: there is no trace, one that was named cannot be read, or two are of the same rank.
    """
    files, named = trace_files(inputs)
    with executor_of(files, executor) if isinstance(executor, str) else nullcontext(executor) as chosen:
        found, failed = _summaries(files, named, chosen, progress, wanted)
    return job(found, failed)


def executor_of(files: list[Path], address: str = "local") -> AbstractContextManager[Executor]:
    """Return what analyses these files: see `executor_for`, local in threads where that is done sooner than by processes."""
    most = MOST_BYTES_ON_TWO_CORES if usable_cores() <= 2 else MOST_BYTES_FOR_THREADS
    return executor_for(address, len(files), in_threads=_bytes(files) < most)


def _bytes(files: Iterable[Path]) -> int:
    total = 0
    for path in files:
        with suppress(OSError):  # which its reader will tell
            total += path.stat().st_size
    return total


def job(found: list[RankSummary], failed: dict[Path, str] | None = None) -> JobTraces:
    """Put the summaries of ranks together.

    Raises:
        TachoscopeError: two are of the same rank.
    """
    summaries = _by_rank(found)
    groups, strangers = match({rank: one.arrivals for rank, one in summaries.items()})
    offsets = [group_offsets(group) for group in groups]
    clock_table = clocks(groups, offsets, list(summaries))
    exposed = {rank: one.exposed for rank, one in summaries.items()}
    late = [lateness(group, completed(group, own, clock_table), exposed) for group, own in zip(groups, offsets, strict=True)]
    collectives = _joined([collective_table(one, number) for number, one in enumerate(late)], COLLECTIVE_COLUMNS)
    waits = _joined([wait_table(one, number) for number, one in enumerate(late)], WAIT_COLUMNS)
    ranks = _rank_table(summaries, waits)
    step_mean = float(ranks["step_mean_ns"].mean()) if len(ranks) else float("nan")
    sizes = {number: len(group.ranks) for number, group in enumerate(groups)}
    return JobTraces(
        summaries=summaries,
        quality=job_quality(summaries, groups=groups, strangers=strangers, clocks=clock_table, failed=failed or {}),
        ranks=ranks,
        clocks=clock_table,
        collectives=collectives,
        waits=waits,
        stragglers=stragglers(collectives, sizes, step_mean),
        dimensions=_dimensions(summaries),
        sums=merged(one.sums for one in found if one.sums is not None),
    )


def _summaries(
    files: list[Path], named: frozenset[Path], executor: Executor, progress: Progress | None, wanted: SummaryOptions
) -> tuple[list[RankSummary], dict[Path, str]]:
    """Return the summaries as they complete, and the reasons of implicit files that are not traces."""
    most = max(_LEAST_OF_A_RANK, min(wanted.collectives, MOST_COLLECTIVES // max(len(files), 1)))
    wanted = replace(wanted, collectives=most)
    label = labels(files)
    running: dict[Future[RankSummary], Path] = {
        executor.submit(summarise, path, replace(wanted, label=label[path])): path for path in files
    }
    found: list[RankSummary] = []
    failed: dict[Path, str] = {}
    first: TachoscopeError | None = None
    try:
        for future in as_completed(list(running)):
            path = running.pop(future)
            try:
                _add_summary(found, future.result())
            except TachoscopeError as error:
                if path in named:
                    raise
                failed[path], first = str(error), first or error
            except BrokenExecutor as error:
                raise TachoscopeError(
                    f"a worker died, probably while it read {path}: {error}", fix="it may have run out of memory: use fewer workers"
                ) from None
            _refuse_twins(found)
            if progress is not None:
                progress(len(found) + len(failed), len(files))
    finally:
        for future in running:
            future.cancel()
    if not found and first is not None:
        raise first
    return found, failed


def _add_summary(found: list[RankSummary], newest: RankSummary) -> None:
    """Add a summary; sums are merged at once to hold only one set."""
    if found and newest.sums is not None:
        sums = merged(one for one in (found[-1].sums, newest.sums) if one is not None)
        found[-1], newest = replace(found[-1], sums=None), replace(newest, sums=sums)
    found.append(newest)


def _refuse_twins(found: list[RankSummary]) -> None:
    """Refuse the newest summary if another is of the same rank or process."""
    newest = found[-1] if found else None
    for other in found[:-1]:
        if newest is None or newest.rank != other.rank:
            continue
        first, second = sorted((newest.path, other.path))
        if _of_one_process(newest, other):
            raise TachoscopeError(
                f"{first} and {second} are recordings of the same process, one after the other",
                fix="give one of them; schedule(..., repeat=1) records only one",
            )
        if newest.rank is not None:
            raise TachoscopeError(
                f"{first} and {second} are both of rank {newest.rank}",
                fix="give the traces of one recording only, one for each rank",
            )


def _of_one_process(one: RankSummary, other: RankSummary) -> bool:
    """Return whether two files are cycles of one profiler: same process in the names, no common time."""
    apart = one.end_ns <= other.start_ns or other.end_ns <= one.start_ns
    return apart and recorder(one.path) != "" and recorder(one.path) == recorder(other.path)


def _by_rank(found: list[RankSummary]) -> dict[int, RankSummary]:
    """Return the summaries by rank; those without get free numbers in file order."""
    for place in range(len(found)):
        _refuse_twins(found[: place + 1])
    known = {one.rank: one for one in found if one.rank is not None}
    free = (number for number in range(len(found) + len(known)) if number not in known)
    silent = sorted((one for one in found if one.rank is None), key=lambda one: one.path)
    known |= {number: replace(one, rank=None) for number, one in zip(free, silent, strict=False)}
    return dict(sorted(known.items()))


def _joined(tables: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    full = [table for table in tables if len(table)]
    return pd.concat(full, ignore_index=True) if full else pd.DataFrame(columns=columns)


def _rank_table(summaries: dict[int, RankSummary], waits: pd.DataFrame) -> pd.DataFrame:
    waited = waits.groupby("rank")[["wait_ns", "added_wait_ns"]].sum().reindex(list(summaries), fill_value=0)
    rows = []
    for rank, one in summaries.items():
        known = one.step_source != "window" and len(one.steps) > 0
        length = float((one.steps["end_ns"] - one.steps["start_ns"]).mean()) if known else float("nan")
        moved = one.by_group[one.by_group["side"] != "launch"]
        rows.append(
            {
                "rank": rank,
                "file": str(one.path),
                "device": one.device_name,
                "events": one.events,
                "steps": len(one.steps) if known else 0,
                "step_mean_ns": length,
                "collectives": one.collectives,
                "communication_ns": int(moved["total_ns"].sum()),
                "wait_ns": int(waited["wait_ns"].loc[rank]),
                "exposed_ns": one.exposed_ns,
                "exposed_wait_ns": min(int(waited["added_wait_ns"].loc[rank]), one.exposed_ns),
                "own_per_step_ns": length - one.exposed_ns / len(one.steps) if known else float("nan"),
            }
        )
    return pd.DataFrame(rows)


def _dimensions(summaries: dict[int, RankSummary]) -> pd.DataFrame:
    tables = [one.by_group.assign(rank=rank, steps=max(len(one.steps), 1), span=_span(one)) for rank, one in summaries.items()]
    columns = ["group_description", "kind", "ranks", "count", "bytes", "exposed_per_step_ns", "exposed_of_step_ratio"]
    columns += ["most_exposed_rank", "most_exposed_per_step_ns", "bus_bandwidth_median_gb_per_s"]
    table = _joined(tables, [])
    if not len(table):
        return pd.DataFrame(columns=columns)
    rows = []
    for key, part in table[table["side"] != "launch"].groupby(["group_description", "kind"], sort=True):
        by_rank = part.assign(each=part["exposed_ns"] / part["steps"]).groupby("rank")["each"].sum()
        unknown = (part["bytes"] < 0).any()
        rows.append(
            (
                *key,
                len(by_rank),
                int(part["count"].sum()) / len(by_rank),
                -1 if unknown else int(part["bytes"].sum()) / len(by_rank),
                float(by_rank.mean()),
                float(by_rank.mean() / part["span"].mean()),
                int(by_rank.index[int(by_rank.to_numpy().argmax())]),
                float(by_rank.max()),
                float(part["bus_bandwidth_median_gb_per_s"].median()),
            )
        )
    return pd.DataFrame(rows, columns=columns).sort_values("exposed_per_step_ns", ascending=False, kind="stable", ignore_index=True)


def _span(one: RankSummary) -> float:
    """Return the mean step in ns, or the whole trace without steps."""
    steps = one.steps
    return float((steps["end_ns"] - steps["start_ns"]).mean()) if len(steps) else float("nan")
