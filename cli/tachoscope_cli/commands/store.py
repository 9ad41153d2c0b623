"""`tachoscope store`: what the store of job records holds, and what it keeps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs
from rich.table import Table

from tachoscope_cli.common import answers
from tachoscope_cli.common.options import TEXT, JsonOption, StoreOption, needs_analysis, print_notice, store_url
from tachoscope_cli.common.output import console, write_json
from tachoscope_cli.store.retention import COMPACT_EXAMPLES, HOLD_EXAMPLES, PRUNE_EXAMPLES, compact, hold, prune
from tachoscope_cli.store.traces import ADD_EXAMPLES, TRACES_EXAMPLE, add_traces, list_traces
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.redaction import redact

if TYPE_CHECKING:
    from tachoscope_analyzers.records import load
    from tachoscope_core.storage.store import Store

store_app = typer.Typer(no_args_is_help=True)

store_app.command("compact", epilog=COMPACT_EXAMPLES)(compact)
store_app.command("prune", epilog=PRUNE_EXAMPLES)(prune)
store_app.command("hold", epilog=HOLD_EXAMPLES)(hold)
store_app.command("add-traces", epilog=ADD_EXAMPLES)(add_traces)
store_app.command("traces", epilog=TRACES_EXAMPLE)(list_traces)


@store_app.command("ls", epilog="Examples: `tachoscope store ls --limit 5`, `tachoscope store ls --format json`")
def store_ls(
    store: StoreOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs, newest first.")] = 20,
    format_: JsonOption = TEXT,
) -> None:
    """List the jobs of the store, the newest first: how they ended, ranks, steps, attempts; of a service its requests."""
    needs_analysis()
    from tachoscope_core.storage.store import Store

    opened = Store(store_url(store))
    times = opened.job_times()
    if not times:
        raise TachoscopeError(f"store {opened.url} is empty", fix="run something first: tachoscope run -- python train.py")
    newest = sorted(times, key=times.__getitem__, reverse=True)[:limit]
    left_out, now = len(times) - len(newest), time.time()
    jobs = (structs.replace(_listed(opened, job, times[job], now), held=_held(opened, job)) for job in newest)
    if format_.value == "json":
        write_json(answers.StoreListing(store=redact(opened.url), left_out_jobs=left_out, jobs=list(jobs)))
    else:
        table = Table("job", "status", "ranks", "steps", "attempts", "last record", box=None, padding=(0, 2, 0, 0))
        for job in jobs:
            table.add_row(job.job, *_job_row(job, now))
        console().print(table)
    if left_out:
        print_notice(f"{left_out} more (--limit)")


@store_app.command("failures", epilog="Examples: `tachoscope store failures`, `tachoscope store failures --format json`")
def store_failures(
    store: StoreOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs to read, newest first.")] = 200,
    format_: JsonOption = TEXT,
) -> None:
    """Count failures by host, job and data shard over the jobs of the store, and list those that fail more than the others.

    Of an attempt only the first failure counts: the others die of it. Preemptions are nobody's failure.
    """
    needs_analysis()
    from tachoscope_cli.store import failures
    from tachoscope_core.storage.store import Store

    opened = Store(store_url(store))
    times = opened.job_times()
    newest = sorted(times, key=times.__getitem__, reverse=True)[:limit]
    found = failures.of_store(opened, newest)
    if format_.value == "json":
        write_json(found)
    else:
        console().print(failures.rendered(found))
    if len(times) > limit:
        print_notice(f"{len(times) - limit} more jobs were not read (--limit)")


@store_app.command(
    "quarantine",
    epilog="Examples: `tachoscope store quarantine resnet`, "
    "`tachoscope store quarantine resnet --release s3://bucket/part-0007.tar`",
)
def store_quarantine(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")],
    release: Annotated[
        list[str] | None,
        typer.Option(metavar="SHARD", help="Remove this shard from the list, since it was fixed. Can be given several times."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """List the data shards of a job that failed on several ranks or attempts, or release them.

    Loaders that ask `tachoscope.quarantined()` skip what is on the list. See docs/guides/shards.md.
    """
    from tachoscope_cli.launcher import shard_quarantine as quarantining
    from tachoscope_core.storage.store import Store

    opened = Store(store_url(store))
    if release:
        quarantining.release(opened, job, release, time.time())
    table = Table("shard", "failures", "ranks", "attempts", "error", "since", box=None, padding=(0, 2, 0, 0))
    for row in quarantining.rows(opened, job, time.time()):
        table.add_row(*row)
    console().print(table if table.row_count else f"no shard of job {job} is quarantined")


def _listed(store: Store, job: str, written: float, now: float) -> answers.ListedJob:
    """Return what is known of a job, or why it cannot be read: the others are listed all the same."""
    from tachoscope_analyzers.records import load

    last = written or None
    try:
        found = load.from_store(store, job, ends_only=True)
    except TachoscopeError as error:
        return answers.ListedJob(job=job, last_record_unix_seconds=last, fault=str(error))
    status = load.status(found, now=now)
    if load.serving_job(found):
        requests, estimated = _requests(found)
        return answers.ListedJob(
            job=job,
            kind="service",
            status=status,
            requests=requests,
            requests_are_estimated=estimated,
            last_record_unix_seconds=last,
        )
    reason = next((end.reason for end in reversed(found.ends) if end.reason and end.status == "failed"), None)
    return answers.ListedJob(
        job=job,
        kind="training",
        status=status,
        reason=reason if status == "failed" else None,
        ranks=len({start.rank for start in found.starts if start.rank >= 0}),
        last_step=int(found.steps.column("step").max(initial=0)),
        attempts=len({start.attempt for start in found.starts}),
        last_record_unix_seconds=last,
    )


def _held(store: Store, job: str) -> str | None:
    from tachoscope_core.storage.retention import hold_of

    try:
        held = hold_of(store, job)
    except TachoscopeError:  # the others are listed all the same; `store prune` does not remove it then
        return "not known"
    return held.reason if held is not None else None


def _requests(job: load.JobRecords) -> tuple[int, bool]:
    """Return the number of answered requests, and whether it is extrapolated from the records that were read."""
    count = sum(request.side == "server" for request in job.requests)
    if not job.partial:
        return count, False
    last = job.heartbeats.last_of_each_writer("seq")
    rows = [row for kind in (job.services, job.requests, job.engine_windows, job.service_ends) for row in kind]
    for row in rows:
        last[row.writer] = max(row.seq, last.get(row.writer, 0))
    return round(count / (len(rows) + len(job.heartbeats)) * sum(seq + 1 for seq in last.values())), True


def _job_row(job: answers.ListedJob, now: float) -> list[str]:
    ago = "-" if job.last_record_unix_seconds is None else f"{_age(now - job.last_record_unix_seconds)} ago"
    if job.held is not None:
        ago += f", held: {job.held}" if job.held else ", held"
    if job.fault is not None:
        return [f"not read: {job.fault}", "", "", "", ago]
    state = f"{job.status} ({job.reason})" if job.reason else str(job.status)
    if job.kind == "service":
        return [state, "service", f"{'about ' if job.requests_are_estimated else ''}{job.requests} requests", "", ago]
    return [state, str(job.ranks), str(job.last_step), str(job.attempts), ago]


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
