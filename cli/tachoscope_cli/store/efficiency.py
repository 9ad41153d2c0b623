"""`tachoscope efficiency`: how users, or accounts, used the accelerators that the scheduler gave them."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tachoscope_cli.common import verdict
from tachoscope_cli.common.options import TEXT, JsonOption, StoreOption, print_notice, store_url
from tachoscope_cli.common.output import draw, progress, write_json
from tachoscope_cli.common.verdict import OutputOption
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from tachoscope_analyzers.fleet.efficiency import RecordedJob
    from tachoscope_core.storage.store import Store

By = StrEnum("By", ["user", "account"])


def efficiency(
    sacct: Annotated[
        Path | None,
        typer.Argument(metavar="SACCT", help="A table that `sacct --parsable2` wrote. Default: this machine's sacct is asked."),
    ] = None,
    since: Annotated[str, typer.Option(metavar="DURATION", help="Length of the period that ends now, such as 24h.")] = "7d",
    by: Annotated[By, typer.Option(help="Whom the accelerators are counted for.")] = By["user"],
    only: Annotated[str | None, typer.Option(metavar="NAME", help="Only this user or account, with its allocations.")] = None,
    format_: JsonOption = TEXT,
    output: OutputOption = None,
    store: StoreOption = None,
) -> None:
    """Show how users, or accounts, used the accelerators that Slurm gave them: productive, lost by cause, not recorded.

    The text is made to be mailed. The hours are those of Slurm's job records; how they were used, the jobs of the store say.
    """
    verdict.prepare_process()
    from tachoscope_analyzers.fleet import efficiency as fleet_efficiency
    from tachoscope_cli.common import answers
    from tachoscope_cli.sources import slurm
    from tachoscope_core.storage.store import Store
    from tachoscope_show.life import efficiency as efficiency_text
    from tachoscope_show.text.units import seconds_of

    seconds = seconds_of(since)
    holder: Literal["user", "account"] = "account" if by.value == "account" else "user"
    rows = slurm.recent_rows(seconds) if sacct is None else slurm.rows_of_file(sacct)
    until = time.time()
    began = until - seconds
    jobs = _recorded(Store(store_url(store)), began)
    found = fleet_efficiency.of_rows(rows, jobs, since=began, until=until, by=holder)
    if only is not None:
        found = [one for one in found if one.name == only]
        if not found:
            raise TachoscopeError(f"{holder} {only!r} held no accelerators in the last {since}")
    if format_.value == "json":
        write_json(answers.Efficiencies(by=holder, since=began, until=until, efficiencies=found), output)
    else:
        draw(lambda out: efficiency_text.render(found, holder, began, until, out, allocations=only is not None), output)


def _recorded(store: Store, since: float) -> list[RecordedJob]:
    """Return the jobs that wrote since then and ran under Slurm; those that cannot be judged are named."""
    from tachoscope_analyzers.fleet.efficiency import RecordedJob, allocations_of
    from tachoscope_analyzers.life.report import analyze_life
    from tachoscope_analyzers.records.life_records import LifeRecords, with_life

    def judged(read: LifeRecords) -> RecordedJob | None:
        ids = allocations_of(read.job)
        life = analyze_life(read).life if ids else None
        return None if life is None or life.cost is None else RecordedJob(read.job.job, ids, life.cost)

    found = []
    names = [job for job, written in store.job_times().items() if not written or written >= since]
    with progress() as bar:
        for job in bar.track(sorted(names), description="reading jobs"):
            try:
                one = with_life(store, job, judged)
            except TachoscopeError as error:
                print_notice(f"job {job} is left out: {error}")
                continue
            found += [] if one is None else [one]
    return found
