"""`tachoscope analyze`: where the time of a job's last attempt went. What lies there and is something else goes to its command."""

from __future__ import annotations

from typing import Annotated

import typer

from tachoscope_cli.common import verdict
from tachoscope_cli.common.options import TEXT_OF_THREE, FormatOption, StoreOption, print_notice
from tachoscope_cli.common.verdict import FailOnLevelOption, Level, OutputOption
from tachoscope_cli.inputs import baselines
from tachoscope_cli.inputs.places import Kind, kind_of, places_of
from tachoscope_cli.inputs.time_window import FromOption, LastOption, TimeWindow, ToOption, window_of
from tachoscope_core.errors import TachoscopeError

_COMMANDS = {Kind.TRACES: "trace", Kind.DUMPS: "hang", Kind.RECORDING: "serving"}


def analyze(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...",
            help="A store, a job's folder in it, spool directories or segments, a saved report. Default: the store. "
            "Other input, such as a profiler trace, has its own command.",
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(help="The job to analyze. Default: the last one written.")] = None,
    from_: FromOption = None,
    to: ToOption = None,
    last: LastOption = None,
    store: StoreOption = None,
    format_: FormatOption = TEXT_OF_THREE,
    output: OutputOption = None,
    fail_on: FailOnLevelOption = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="An earlier run to compare with, by state: a store, a job's folder, a spool, a saved report; or profiler traces, "
            "also by operator and kernel.",
        ),
    ] = None,
    baseline_job: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The job to compare with. Default: the one written last in --baseline."),
    ] = None,
) -> None:
    """Show where the time of a job went, what the bottleneck is, and what to do about it.

    Judges the job's last attempt, of a long one the newest part. The whole life of a job: `tachoscope goodput`. Profiler traces:
    `tachoscope trace`. An inference server: `tachoscope serving`. Dumps of a flight recorder: `tachoscope hang`. Two runs:
    `tachoscope compare`.
    """
    verdict.prepare_process()
    if store and paths:
        raise TachoscopeError("give either PATH or --store, not both")
    against, gate = "--baseline" if baseline else "--baseline-job" if baseline_job else "", fail_on == Level.regression
    baselines.check(against, gate=gate)
    places, window = places_of(paths, store), window_of(from_, to, last)
    kind = kind_of(places) if paths else Kind.RECORDS
    _check_kind(kind, places[0], window)
    if kind is Kind.TRACES:
        baselines.check_traces(places, baseline or [], baseline_job, gate=gate)
        from tachoscope_cli.inputs.traces import begin_reading

        begin_reading(places)
        from tachoscope_cli.inputs import trace_report

        options = trace_report.Options(job, baseline=tuple(baseline or ()))
        trace_report.run(places, options, format_.value, output, fail_on)
        return
    from tachoscope_cli.inputs import judged

    report, then = judged.report_on(places, job, store, kind=kind, window=window)
    if against:
        report = baselines.against(
            report, places, baseline or [], baseline_job, lambda where, name: judged.report_on(where, name)[0]
        )
    verdict.end(report, format_.value, output, fail_on, then=then)


def _check_kind(kind: Kind, place: str, window: TimeWindow) -> None:
    """Refuse options that do not apply to this input, and print the command that handles it."""
    if window != TimeWindow() and kind is not Kind.RECORDS:
        raise TachoscopeError(f"--from, --to and --last choose a part of a job's records, and {place} is {kind.value}")
    if kind in _COMMANDS:
        print_notice(f"{place} is {kind.value}: continuing as `tachoscope {_COMMANDS[kind]}`")
