"""`tachoscope store compact`, `prune` and `hold`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, as_completed
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import MofNCompleteColumn
from rich.table import Table

from tachoscope_cli.common import answers, verdict
from tachoscope_cli.common.options import TEXT, JsonOption, StoreOption, print_notice, store_url
from tachoscope_cli.common.output import console, progress, write_json
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.redaction import redact
from tachoscope_show.text.units import bytes_of, counted, seconds_of, size

if TYPE_CHECKING:
    from tachoscope_analyzers.compaction.days import DueDay
    from tachoscope_analyzers.compaction.set_in_making import Compacted
    from tachoscope_core.storage.retention import Disposable
    from tachoscope_core.storage.store import Store

COMPACT_EXAMPLES = "Examples: `tachoscope store compact`, `tachoscope store compact llama-7b --at-rest 10m`"
PRUNE_EXAMPLES = (
    "Examples: `tachoscope store prune --records 90d --metrics 30d --traces 20GB --dry-run`, then the same without `--dry-run`"
)
HOLD_EXAMPLES = "Examples: `tachoscope store hold llama-7b --reason 'baseline of 2026'`, `tachoscope store hold llama-7b --release`"


def compact(
    jobs: Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="Only these jobs. Default: all of the store.")] = None,
    store: StoreOption = None,
    at_rest: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Compact all of a job that has not written for this long (10m, 2d), and the past days of other jobs.",
        ),
    ] = "1h",
    executor: Annotated[
        str,
        typer.Option(
            metavar="local|dask://HOST:PORT", help="Where days are compacted: on all cores of this machine, or a cluster."
        ),
    ] = "local",
    format_: JsonOption = TEXT,
) -> None:
    """Convert the records of past days to Parquet: a few objects instead of thousands, and several times as fast to read.

    Reports do not change. Each hour of a training is judged on the way, and reports on long jobs show the findings. The command can
    run beside agents and readers, and can be interrupted and run again at any time.
    """
    verdict.prepare_process()
    from tachoscope_core.storage.store import Store

    opened, seconds = Store(store_url(store)), seconds_of(at_rest)
    known = _jobs(opened)
    if unknown := sorted({*(jobs or ())} - {*known}):
        raise TachoscopeError(f"store {opened.url} has no records of job {unknown[0]!r}", fix="tachoscope store ls")
    done, failed = _compacted(opened, jobs or known, seconds, executor)
    found = [
        answers.CompactedJob(
            job=job, segments=one.segments, sets=one.sets, json_bytes=one.json_bytes, stored_bytes=one.stored_bytes
        )
        for job, one in sorted(done.items())
        if one.sets
    ]
    if format_.value == "json":
        write_json(answers.Compaction(store=redact(opened.url), jobs=found))
    elif not found and not failed:
        console().print(f"nothing to compact: all complete days, and all jobs without writes for {at_rest}, are compacted")
    else:
        table = Table("job", "segments", "JSON lines, unpacked", "stored now", box=None, padding=(0, 2, 0, 0))
        for one in found:
            table.add_row(one.job, f"{one.segments:,}", size(one.json_bytes), size(one.stored_bytes))
        console().print(table)
    if failed:
        raise TachoscopeError(f"{counted(len(failed), 'job')} could not be compacted: see above")


def _compacted(store: Store, jobs: Sequence[str], at_rest_seconds: float, executor: str) -> tuple[dict[str, Compacted], set[str]]:
    """Compact jobs day by day; return what was done by job, and the jobs that failed, of which notices were printed."""
    from tachoscope_analyzers.compaction.days import compact_day, due_days
    from tachoscope_analyzers.compaction.set_in_making import Compacted
    from tachoscope_analyzers.job.report import verdicts as judge
    from tachoscope_analyzers.trace.ranks.executor import executor_for

    done: dict[str, Compacted] = defaultdict(Compacted)
    failed: set[str] = set()
    days: list[DueDay] = []
    with progress(MofNCompleteColumn()) as bar:
        for job in bar.track(jobs, description="listing jobs"):
            try:
                days += due_days(store, job, now=time.time(), at_rest_seconds=at_rest_seconds)
            except TachoscopeError as error:  # the other jobs are compacted all the same
                print_notice(str(error))
                failed.add(job)
        with executor_for(executor, len(days)) as pool:
            running = {pool.submit(compact_day, store, day, judge): day.job for day in days}
            for future in bar.track(as_completed(running), len(running), description="compacting days"):
                job = running[future]
                try:
                    done[job] += future.result()
                except TachoscopeError as error:
                    print_notice(str(error))
                    failed.add(job)
                except BrokenExecutor as error:
                    raise TachoscopeError(
                        f"a process that compacted job {job} was killed: {error}",
                        fix="it may have run out of memory; compact on one core: taskset -c 0 tachoscope store compact",
                    ) from None
    for fault in (fault for one in done.values() for fault in one.broken):
        print_notice(f"not compacted: {fault}")
    return done, failed


def prune(
    records: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Remove jobs that have not written for this long (90d), but not their traces."),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="AGE", help="Remove metric samples of days (UTC) that ended this long ago, such as 30d.")
    ] = None,
    traces: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Remove the oldest profiler traces beyond this size, such as 20GB.")
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Remove the status of nodes after their agents have not written for this long."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed, without removing it.")] = False,
    store: StoreOption = None,
    format_: JsonOption = TEXT,
) -> None:
    """Remove old records, metric samples and node status, and traces beyond a size. Held jobs (`tachoscope store hold`) are kept.

    Records are removed by whole jobs, so a running job keeps all of its records.
    """
    from tachoscope_core.storage import retention
    from tachoscope_core.storage.store import Store

    if not (records or metrics or traces or nodes):
        raise TachoscopeError(
            "no option selects what to remove", fix="give --records, --metrics, --traces or --nodes, first with --dry-run"
        )
    opened = Store(store_url(store))
    jobs = _jobs(opened)
    found = list(_disposable(opened, records, metrics, traces, nodes))
    for job in jobs if records or traces else ():
        if held := retention.hold_of(opened, job):
            print_notice(f"job {job} is held{f': {held.reason}' if held.reason else ''}")
    if not dry_run:
        retention.remove(opened, found)
    if format_.value == "json":
        things = [_removed(one) for one in found]
        write_json(answers.Pruning(store=redact(opened.url), dry_run=dry_run, removed=things))
        return
    table = Table("what", "name", "objects", "bytes", box=None, padding=(0, 2, 0, 0))
    for one in found:
        table.add_row(one.what, one.name, f"{len(one.paths):,}", size(one.bytes))
    if found:
        console().print(table)
    total = size(sum(one.bytes for one in found))
    objects = counted(sum(len(one.paths) for one in found), "object")
    console().print(f"would remove {objects}, {total} (--dry-run)" if dry_run else f"removed {objects}, {total}")


def _jobs(store: Store) -> list[str]:
    """Return the jobs of a store; raise if the store is empty."""
    jobs = store.jobs()
    if not jobs and not store.files.exists(f"{store.root}/metrics") and not store.files.exists(f"{store.root}/nodes"):
        raise TachoscopeError(f"store {store.url} is empty", fix="name another with --store")
    return jobs


def _disposable(
    store: Store, records: str | None, metrics: str | None, traces: str | None, nodes: str | None
) -> Iterator[Disposable]:
    from tachoscope_core.storage import retention

    now = time.time()
    if records:
        yield from retention.old_records(store, before=now - seconds_of(records))
    if metrics:
        yield from retention.old_samples(store, before=now - seconds_of(metrics))
    if traces:
        yield from retention.oldest_traces(store, most_bytes=bytes_of(traces))
    if nodes:
        yield from retention.gone_nodes(store, before=now - seconds_of(nodes))


def _removed(one: Disposable) -> answers.RemovedThing:
    return answers.RemovedThing(
        what=one.what, name=one.name, last_written_unix_seconds=one.last, bytes=one.bytes, objects=len(one.paths)
    )


def hold(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")],
    reason: Annotated[str, typer.Option(help="Shown by prune.")] = "",
    release: Annotated[bool, typer.Option("--release", help="End the hold.")] = False,
    store: StoreOption = None,
) -> None:
    """Protect a job and its traces from `tachoscope store prune`."""
    from tachoscope_core.storage import retention
    from tachoscope_core.storage.store import Store

    opened = Store(store_url(store))
    if release:
        retention.release(opened, job)
        console().print(f"job {job} is not held any more")
    else:
        retention.hold(opened, job, reason, time.time())
        console().print(f"job {job} is held: tachoscope store prune keeps it")
