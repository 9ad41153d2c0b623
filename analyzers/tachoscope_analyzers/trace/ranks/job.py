"""Many ranks are one job: each is analysed on its own, and what they leave behind is put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tachoscope_analyzers.trace.ranks.clock_alignment import Clock, clock_rows, clock_table, completed, group_offsets
from tachoscope_analyzers.trace.ranks.collective_matching import match
from tachoscope_analyzers.trace.ranks.executor import executor_for, usable_cores
from tachoscope_analyzers.trace.ranks.job_quality import COLUMNS, Row, job_quality
from tachoscope_analyzers.trace.ranks.lateness import (
    COLLECTIVE_COLUMNS,
    WAIT_COLUMNS,
    Lateness,
    collective_table,
    lateness,
    wait_table,
)
from tachoscope_analyzers.trace.ranks.rank_summary import RankSummary, SummaryOptions, summarise
from tachoscope_analyzers.trace.ranks.stragglers import stragglers
from tachoscope_analyzers.trace.reading.trace_files import labels, recorder, trace_files
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    import pandas as pd

    from tachoscope_analyzers.trace.analyses.operator_profile import TraceProfile

Progress = Callable[[int, int], None]
"""Called with how many files were analysed, and all there are."""

MOST_COLLECTIVES = 1 << 19
"""Of a whole job, some 90 bytes each: more ranks leave fewer collectives each, so that memory stays as it is."""
MOST_BYTES_FOR_THREADS, MOST_BYTES_ON_TWO_CORES = 16 << 20, 64 << 20
"""Of all files of a job as they lie on the disk. A process has to begin and import, some 0.7 processor seconds and 100 MiB;
threads wait for one another in the part of the work that needs the interpreter's lock, which weighs more with more cores."""
_LEAST_OF_A_RANK = 256
_SUMMARY_ONLY = SummaryOptions(judged=False)


@dataclass(frozen=True)
class JobTraces:
    """A job: its ranks and what only shows when they are compared. Its tables are made when they are first asked for.

    Attributes:
        summaries: by rank, rising. problems: see `job_quality`. late: who waited for whom, for each process group.
        clock: of each rank.
        sums: of all ranks, to compare the job by (`diff.diff`), where they were wanted.
        quality: problem rows (rank, file, problem, detail), empty when all is well.
        ranks: one row for each: rank, file, device, events, steps, step_mean_ns, collectives, communication_ns, wait_ns,
            exposed_ns, exposed_wait_ns (what of the exposed time is waiting for later ranks; all four of the whole trace),
            own_per_step_ns (step less the exposed part of collectives: what the rank itself takes).
        clocks, collectives, waits, stragglers: see `clock_alignment.clock_table`, `lateness.collective_table`,
            `lateness.wait_table`, `stragglers.stragglers`.
        dimensions: exposed communication for each description of a process group (dp, tp, ...) and kind: group_description, kind,
            ranks, count and bytes per rank, exposed_per_step_ns (mean over ranks), exposed_of_step_ratio, most_exposed_rank,
            most_exposed_per_step_ns, bus_bandwidth_median_gb_per_s.
    """

    summaries: dict[int, RankSummary]
    problems: list[Row]
    late: list[Lateness]
    clock: dict[int, Clock]
    sums: TraceProfile | None = None

    @cached_property
    def quality(self) -> pd.DataFrame:
        import pandas as pd  # a third of a second, which a report on one rank does not need

        return pd.DataFrame(self.problems, columns=COLUMNS)

    @cached_property
    def ranks(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame([_rank_row(self, rank) for rank in self.summaries])

    @cached_property
    def clocks(self) -> pd.DataFrame:
        return clock_table(self.clock)

    @cached_property
    def collectives(self) -> pd.DataFrame:
        return _joined([collective_table(one, number) for number, one in enumerate(self.late)], COLLECTIVE_COLUMNS)

    @cached_property
    def waits(self) -> pd.DataFrame:
        return _joined([wait_table(one, number) for number, one in enumerate(self.late)], WAIT_COLUMNS)

    @cached_property
    def stragglers(self) -> pd.DataFrame:
        step_mean = float(self.ranks["step_mean_ns"].mean()) if len(self.ranks) else float("nan")
        sizes = {number: len(one.group.ranks) for number, one in enumerate(self.late)}
        return stragglers(self.collectives, sizes, step_mean)

    @cached_property
    def dimensions(self) -> pd.DataFrame:
        return _dimensions(self.summaries)

    @property
    def compared_collectives(self) -> int:
        """How many collectives at least two ranks recorded."""
        return sum(len(one.last) for one in self.late)

    def waited_ns(self, rank: int) -> tuple[int, int]:
        """Return for how long a rank waited for later ones, and what of that it computed nothing in (`Lateness.added_wait`)."""
        waits = [one.wait[one.group.ranks == rank].sum() for one in self.late]
        added = [one.added_wait[one.group.ranks == rank].sum() for one in self.late]
        return int(sum(waits)), int(sum(added))

    def exposed_wait_ns(self, rank: int) -> int:
        """Return what of a rank's exposed communication is waiting for later ranks."""
        return min(self.waited_ns(rank)[1], self.summaries[rank].exposed_ns)


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
    clock = clock_rows(groups, offsets, list(summaries))
    exposed = {rank: one.exposed for rank, one in summaries.items()}
    return JobTraces(
        summaries=summaries,
        problems=job_quality(summaries, groups=groups, strangers=strangers, clocks=clock, failed=failed or {}),
        late=[lateness(group, completed(group, own, clock), exposed) for group, own in zip(groups, offsets, strict=True)],
        clock=clock,
        sums=_merged([one.sums for one in found if one.sums is not None]),
    )


def _merged(sums: list[TraceProfile]) -> TraceProfile | None:
    if len(sums) < 2:
        return sums[0] if sums else None
    from tachoscope_analyzers.trace.analyses.operator_profile import merged  # imports pandas, which no report needs

    return merged(sums)


def _summaries(
    files: list[Path], named: frozenset[Path], executor: Executor, progress: Progress | None, wanted: SummaryOptions
) -> tuple[list[RankSummary], dict[Path, str]]:
    """Return the summaries as they complete, and the reasons of implicit files that are not traces."""
    most = max(_LEAST_OF_A_RANK, min(wanted.collectives, MOST_COLLECTIVES // max(len(files), 1)))
    wanted = msgspec.structs.replace(wanted, collectives=most)
    label = labels(files)
    running: dict[Future[RankSummary], Path] = {
        executor.submit(summarise, path, msgspec.structs.replace(wanted, label=label[path])): path for path in files
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
        sums = _merged([one for one in (found[-1].sums, newest.sums) if one is not None])
        found[-1], newest = msgspec.structs.replace(found[-1], sums=None), msgspec.structs.replace(newest, sums=sums)
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
    known |= {number: msgspec.structs.replace(one, rank=None) for number, one in zip(free, silent, strict=False)}
    return dict(sorted(known.items()))


def _joined(tables: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    full = [table for table in tables if len(table)]
    return pd.concat(full, ignore_index=True) if full else pd.DataFrame(columns=columns)


def _rank_row(job: JobTraces, rank: int) -> dict[str, object]:
    one = job.summaries[rank]
    known = one.step_source != "window" and len(one.steps) > 0
    length = _span(one) if known else float("nan")
    return {
        "rank": rank,
        "file": str(one.path),
        "device": one.device_name,
        "events": one.events,
        "steps": len(one.steps) if known else 0,
        "step_mean_ns": length,
        "collectives": one.collectives,
        "communication_ns": int(one.by_group["total_ns"][one.by_group["side"] != "launch"].sum()),
        "wait_ns": job.waited_ns(rank)[0],
        "exposed_ns": one.exposed_ns,
        "exposed_wait_ns": job.exposed_wait_ns(rank),
        "own_per_step_ns": length - one.exposed_ns / len(one.steps) if known else float("nan"),
    }


def _dimensions(summaries: dict[int, RankSummary]) -> pd.DataFrame:
    import pandas as pd

    tables = [
        pd.DataFrame(one.by_group).assign(rank=rank, steps=max(len(one.steps), 1), span=_span(one))
        for rank, one in summaries.items()
    ]
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
    """Return the mean step in ns; NaN: it has no steps."""
    start, end = one.steps["start_ns"], one.steps["end_ns"]
    lengths = end - start
    return float(lengths.mean()) if len(lengths) else float("nan")
