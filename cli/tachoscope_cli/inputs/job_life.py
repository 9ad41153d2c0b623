"""`tachoscope goodput`: the life of one job, with what a scheduler, a price list and a maintenance plan say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.progress import TimeElapsedColumn

from tachoscope_analyzers.data.prices import read_prices, shipped_prices
from tachoscope_analyzers.hang_evidence.report import with_evidence
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records.life_records import LifeRecords, Progress
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_cli.common import output
from tachoscope_cli.inputs import maintenance as maintenance_file
from tachoscope_cli.inputs import records as paths
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report


@dataclass(frozen=True, slots=True)
class Options:
    """What the user says beside the job: files of prices and of maintenance, and words that name a scheduler's documents."""

    prices: Path | None = None
    maintenance: Path | None = None
    scheduler: Sequence[str] = ()


def analyze(places: list[str], job: str, options: Options) -> Report:
    """Return the report on a job's life.

    Raises:
        TachoscopeError: the places hold no such job, it has no start, an option names something that cannot be read, or the place
            is a saved report of something else.
    """
    saved = paths.saved_report(places)
    if saved is not None:
        return _same_view(saved, places[0], job, options)
    allocations = []
    if options.scheduler:
        from tachoscope_cli.sources.schedulers import allocations as read_allocations

        allocations = read_allocations(list(options.scheduler))
    maintained = maintenance_file.read(options.maintenance) if options.maintenance else ()
    prices = read_prices(options.prices) if options.prices else shipped_prices()
    with output.progress(TimeElapsedColumn()) as bar:
        task = bar.add_task("reading records", total=1.0)

        def shown(what: str) -> Progress:
            return lambda part: bar.update(task, completed=part, description=what)

        def analysis(life: LifeRecords) -> Report:
            told = shown("attributing steps")
            return analyze_life(life, allocations=allocations, maintenance=maintained, prices=prices, progress=told)

        report = paths.with_life(places, job, analysis, progress=shown("reading records"))
    place = paths.stored_job(places, job)
    return report if place is None else with_evidence(report, place[0])


def _same_view(saved: Report, path: str, job: str, options: Options) -> Report:
    """Return a saved report if it is the requested view; other views need the records."""
    if saved.life is not None and saved.job == job and options == Options():
        return saved
    view = "the whole life" if saved.life is not None else "one attempt"
    raise TachoscopeError(
        f"{path} is a saved report of {view} of job {saved.job!r}; other views need the records",
        fix=f"tachoscope analyze {path}; or name the store that has the records",
    )


def other_attempts(job: JobRecords, store: str | None) -> list[str]:
    """Return the line that reports a job's other attempts, to follow a report on its last one; none if there was one only."""
    attempts = sorted({row.attempt for row in job.starts if row.rank >= 0})
    judged = job.steps.last_attempt()
    if len(attempts) < 2 or judged not in attempts:
        return []
    where = f" --store {store}" if store else ""
    place = f"attempt {attempts.index(judged) + 1} of {len(attempts)}"
    return [f"this is {place}; the whole life: tachoscope goodput {job.job}{where}"]
