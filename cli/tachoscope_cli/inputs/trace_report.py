"""`tachoscope trace`: the report on profiler traces, and what is written beside it (what few ask for is imported by who asks)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console

from tachoscope_analyzers.trace.findings.report import report
from tachoscope_analyzers.trace.ranks.job import JobTraces, read_job
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
from tachoscope_analyzers.trace.reading.trace_files import stem
from tachoscope_cli.common.options import print_notice
from tachoscope_cli.common.output import progress, show
from tachoscope_cli.common.verdict import Level, Severity, exit_if_reached
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import QualityNote, Report

_JOB_TABLES = ("ranks", "clocks", "collectives", "waits", "stragglers", "dimensions", "quality")


@dataclass(frozen=True, slots=True)
class Options:
    """What `tachoscope trace` was asked for, beside the traces. See its help."""

    name: str | None = None
    executor: str = "local"
    replay: bool = True
    tables: Path | None = None
    perfetto: Path | None = None
    baseline: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Analysis:
    """A report, and the traces that it is of, by rank."""

    report: Report
    job: JobTraces

    def write_further(self, options: Options) -> None:
        """Write what was asked for beside the report, and say on stderr where it is.

        Raises:
            TachoscopeError: it cannot be written, or `--perfetto` was asked for with several traces.
        """
        summaries = list(self.job.summaries.values())
        if options.tables is not None:
            from tachoscope_analyzers.trace.analyses.all_tables import write_table

            for table in _JOB_TABLES:
                write_table(getattr(self.job, table), options.tables / "job", table)
            print_notice(f"tables written to {options.tables}")
        if options.perfetto is not None:
            if len(summaries) > 1:
                raise TachoscopeError(f"--perfetto writes one trace, {len(summaries)} were given", fix="name one of them")
            from tachoscope_analyzers.trace.export import annotated_perfetto as annotated

            annotated.write_annotated(summaries[0].path, options.perfetto, self.report)
            print_notice(f"trace written to {options.perfetto}; open it in https://ui.perfetto.dev")


def run(paths: list[str], options: Options, format_: str, output: Path | None, fail_on: Level | Severity | None) -> None:
    """Analyse traces, show the report, write what was asked for beside it, and end with the exit code of `fail_on`.

    Raises:
        TachoscopeError: as `analyze` and `write_further`.
    """
    analysis = analyze(paths, options, Console(stderr=True))
    show(analysis.report, format_, output)
    analysis.write_further(options)
    exit_if_reached(fail_on, analysis.report)


def analyze(paths: list[str], options: Options, console: Console) -> Analysis:
    """Analyse traces as one job, with a progress bar on a terminal, and write the tables of its ranks.

    Raises:
        TachoscopeError: see `read_job` and `report`; or tables were asked for and cannot be written.
    """
    if options.tables is not None:
        from tachoscope_analyzers.trace.analyses.all_tables import must_be_writable

        must_be_writable(options.tables)
    wanted = SummaryOptions(what_if=options.replay, tables=options.tables, profile=bool(options.baseline))
    job = _read(paths, options.executor, wanted, console)
    found = report(job, options.name or _name(paths))
    if not options.replay:
        found = msgspec.structs.replace(found, quality=[*found.quality, _NOT_REPLAYED])
    if options.baseline:
        from tachoscope_analyzers.trace.compare.report_changes import compared

        other = _read(list(options.baseline), options.executor, SummaryOptions(what_if=False, profile=True), console)
        found = compared(found, job, report(other, _name(list(options.baseline))), other)
    return Analysis(found, job)


_NOT_REPLAYED = QualityNote(
    what="no replay", severity="note", means="`if fixed` subtracts the loss instead of replaying the step: an upper bound"
)


def _read(paths: list[str], executor: str, wanted: SummaryOptions, console: Console) -> JobTraces:
    if not console.is_terminal:
        return read_job(paths, executor=executor, wanted=wanted)
    from rich.progress import MofNCompleteColumn, TimeElapsedColumn

    with progress(MofNCompleteColumn(), TimeElapsedColumn(), on=console) as bar:
        task = bar.add_task("reading traces", total=None)
        return read_job(
            paths, executor=executor, wanted=wanted, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )


def _name(paths: list[str]) -> str:
    """Return a name for the job: the file without its suffixes, or the folder."""
    first = Path(paths[0].rstrip("/"))
    return stem(first) or str(first)
