"""`tachoscope analyze` on profiler traces: the report, and what is written beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tachoscope_analyzers.trace import annotated
from tachoscope_analyzers.trace.changes import compared
from tachoscope_analyzers.trace.job_report import report
from tachoscope_analyzers.trace.rank_summary import Wanted
from tachoscope_analyzers.trace.ranks import JobTraces, read_job
from tachoscope_analyzers.trace.tables import write_table
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report import Report


@dataclass(frozen=True, slots=True)
class Options:
    """What `tachoscope analyze` was asked for, beside the traces. See its help."""

    name: str | None = None
    executor: str = "local"
    replay: bool = True
    tables: Path | None = None
    perfetto: Path | None = None
    baseline: tuple[str, ...] = ()


def analyze(paths: list[str], options: Options, console: Console) -> Report:
    """Analyse traces as one job, with a progress bar on a terminal, and write what else was asked for.

    Raises:
        TachoscopeError: see `read_job`, `report` and `perfetto.write`.
    """
    wanted = Wanted(what_if=options.replay, tables=options.tables, profile=bool(options.baseline))
    job = _read(paths, options.executor, wanted, console)
    found = report(job, options.name or _name(paths))
    if options.tables is not None:
        for table in ("ranks", "clocks", "collectives", "waits", "stragglers", "dimensions", "quality"):
            write_table(getattr(job, table), options.tables / "job", table)
    if options.perfetto is not None:
        if len(job.summaries) > 1:
            raise TachoscopeError(f"--perfetto writes one trace, {len(job.summaries)} were given", fix="name one of them")
        annotated.write_annotated(next(iter(job.summaries.values())).path, options.perfetto, found)
    if options.baseline:
        other = _read(list(options.baseline), options.executor, Wanted(judged=False, profile=True), console)
        found = compared(found, job, other, _name(list(options.baseline)))
    return found


def _read(paths: list[str], executor: str, wanted: Wanted, console: Console) -> JobTraces:
    columns = (TextColumn("reading traces"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        return read_job(
            paths, executor=executor, wanted=wanted, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )


def _name(paths: list[str]) -> str:
    """Return what to call the job: the file without its endings, or the folder."""
    first = Path(paths[0].rstrip("/"))
    stem = first.name
    for suffix in (".gz", ".zst", ".json", ".sqlite", ".trace", ".pt"):
        stem = stem.removesuffix(suffix)
    return stem or str(first)
