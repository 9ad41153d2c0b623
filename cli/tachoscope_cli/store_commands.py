"""`tachoscope store`: what the store of job records holds."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.table import Table

from tachoscope_cli.options import StoreOption, needs_analysis, notice, store_url
from tachoscope_cli.show import console
from tachoscope_cli.stored_traces import ADD_EXAMPLES, TRACES_EXAMPLE, add_traces, list_traces
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from tachoscope_analyzers import load

store_app = typer.Typer(no_args_is_help=True, help="Look into the store of job records.")

TextOrJson = StrEnum("TextOrJson", ["text", "json"])

store_app.command("add-traces", epilog=ADD_EXAMPLES)(add_traces)
store_app.command("traces", epilog=TRACES_EXAMPLE)(list_traces)


@store_app.command("ls", epilog="Example: `tachoscope store ls --limit 5`")
def store_ls(
    store: StoreOption = None,
    limit: Annotated[int, typer.Option(min=1, help="List so many jobs, the newest first.")] = 20,
) -> None:
    """List the jobs of the store, the newest first: how they ended, ranks, steps, attempts; of a service its requests."""
    from tachoscope_analyzers import load
    from tachoscope_core.store import Store

    opened = Store(store_url(store))
    times = opened.job_times()
    if not times:
        raise TachoscopeError(f"store {opened.url} is empty", fix="run something first: tachoscope run -- python train.py")
    table = Table("job", "status", "ranks", "steps", "attempts", "last record", box=None, padding=(0, 2, 0, 0))
    for job in sorted(times, key=times.__getitem__, reverse=True)[:limit]:
        try:
            row = _job_row(load.from_store(opened, job, ends_only=True), times[job])
        except TachoscopeError as error:  # of this job: the others are listed all the same
            row = [f"not read: {error}", "", "", "", _ago(times[job])]
        table.add_row(job, *row)
    console().print(table)
    if len(times) > limit:
        notice(f"{len(times) - limit} more (--limit)")


@store_app.command("failures", epilog="Examples: `tachoscope store failures`, `tachoscope store failures --format json`")
def store_failures(
    store: StoreOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Look at so many jobs, the newest first.")] = 200,
    format_: Annotated[TextOrJson, typer.Option("--format", help="text for people, json for programs.")] = TextOrJson["text"],
) -> None:
    """Count failures by host, job and data shard over the jobs of the store, and say who fails more than the others.

    Of an attempt only the first failure counts: the others die of it. Preemptions are nobody's failure.
    """
    needs_analysis()
    from tachoscope_cli import failures
    from tachoscope_core.store import Store

    opened = Store(store_url(store))
    times = opened.job_times()
    newest = sorted(times, key=times.__getitem__, reverse=True)[:limit]
    found = failures.of_store(opened, newest)
    if format_.value == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        console().print(failures.rendered(found))
    if len(times) > limit:
        notice(f"{len(times) - limit} more jobs were not looked at (--limit)")


@store_app.command(
    "quarantine",
    epilog="Examples: `tachoscope store quarantine resnet`, "
    "`tachoscope store quarantine resnet --release s3://bucket/part-0007.tar`",
)
def store_quarantine(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")],
    release: Annotated[
        list[str] | None,
        typer.Option(metavar="SHARD", help="Take this shard off the list: it was mended. Can be given several times."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """List the data shards of a job that failed on several ranks or attempts, or release them.

    Loaders that ask `tachoscope.quarantined()` skip what is on the list. See docs/shards.md.
    """
    from tachoscope_cli import quarantining
    from tachoscope_core.store import Store

    opened = Store(store_url(store))
    if release:
        quarantining.release(opened, job, release, time.time())
    table = Table("shard", "failures", "ranks", "attempts", "error", "since", box=None, padding=(0, 2, 0, 0))
    for row in quarantining.rows(opened, job, time.time()):
        table.add_row(*row)
    console().print(table if table.row_count else f"no shard of job {job} is quarantined")


def _job_row(job: load.JobRecords, written: float) -> list[str]:
    from tachoscope_analyzers import load

    state = load.status(job, now=time.time())
    reason = next((end.reason for end in reversed(job.ends) if end.reason and end.status == "failed"), "")
    if load.serving_job(job):
        return [state, "service", _requests(job), "", _ago(written)]
    ranks = {start.rank for start in job.starts if start.rank >= 0}
    attempts = {start.attempt for start in job.starts}
    return [
        f"{state} ({reason})" if reason and state == "failed" else state,
        str(len(ranks)),
        str(max((step.step for step in job.steps), default=0)),
        str(len(attempts)),
        _ago(written),
    ]


def _requests(job: load.JobRecords) -> str:
    """Return how many requests a service answered; where not all records were read, by their share in those that were."""
    count = sum(request.side == "server" for request in job.requests)
    if not job.partial:
        return f"{count} requests"
    last: dict[str, int] = {}
    rows = [row for kind in (job.services, job.requests, job.engine_windows, job.heartbeats, job.service_ends) for row in kind]
    for row in rows:
        last[row.writer] = max(row.seq, last.get(row.writer, 0))
    return f"about {round(count / len(rows) * sum(seq + 1 for seq in last.values()))} requests"


def _ago(written: float) -> str:
    """Return how long ago the last record was written; a dash: there is none."""
    return f"{_age(time.time() - written)} ago" if written else "-"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
