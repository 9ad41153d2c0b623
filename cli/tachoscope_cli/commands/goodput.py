"""`tachoscope goodput`: the whole life of a job, over all its attempts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tachoscope_cli.common import verdict
from tachoscope_cli.common.options import TEXT_OF_THREE, FormatOption, PricesOption, StoreOption
from tachoscope_cli.common.verdict import FailOnOption, OutputOption
from tachoscope_cli.inputs.places import places_of
from tachoscope_core.errors import TachoscopeError


def goodput(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job, by its name.")],
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="A store, a job's folder in it, or spool directories. Default: the store."),
    ] = None,
    store: StoreOption = None,
    scheduler: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help="The scheduler's records of the job, from a FILE, slurm:JOBID or kubernetes:NAMESPACE/NAME: time in the queue and "
            "how long it held its nodes.",
        ),
    ] = None,
    prices: PricesOption = None,
    maintenance: Annotated[Path | None, typer.Option(metavar="FILE", help="Planned maintenance; its time is excluded.")] = None,
    format_: FormatOption = TEXT_OF_THREE,
    output: OutputOption = None,
    fail_on: FailOnOption = None,
) -> None:
    """Show where the allocated time of a job went over its whole life: failures, recoveries, checkpoints, hangs, lost work.

    Also how often to save, and what the hours cost.
    """
    verdict.prepare_process()
    if not job.strip():
        raise TachoscopeError("the job name is empty", fix="tachoscope store ls")
    from tachoscope_cli.inputs import job_life

    options = job_life.Options(prices, maintenance, tuple(scheduler or ()))
    verdict.end(job_life.analyze(places_of(paths, store), job, options), format_.value, output, fail_on)
