"""`tachoscope analyze`: where the time of a job's last attempt went. What lies there and is something else goes to its command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tachoscope_cli.commands import former_options
from tachoscope_cli.commands.former_options import FormerOptions
from tachoscope_cli.common import verdict
from tachoscope_cli.common.options import TEXT_OF_THREE, FormatOption, StoreOption, print_notice
from tachoscope_cli.common.verdict import FailOnLevelOption, Level, OutputOption
from tachoscope_cli.inputs import baselines
from tachoscope_cli.inputs.places import Kind, kind_of, places_of
from tachoscope_cli.inputs.serving_options import refuse_looks
from tachoscope_cli.inputs.time_window import FromOption, LastOption, TimeWindow, ToOption, window_of
from tachoscope_core.errors import TachoscopeError

_COMMANDS = {Kind.TRACES: "trace", Kind.DUMPS: "hang", Kind.RECORDING: "serving"}


def analyze(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...",
            help="A store, a job's folder in it, spool directories or segments, a saved report. Default: the store. "
            "Other things, such as a profiler trace, are judged by their own command.",
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(help="The job to judge. Default: the one written last.")] = None,
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
    tables: Annotated[Path | None, typer.Option(metavar="DIR", hidden=True)] = None,
    perfetto: Annotated[Path | None, typer.Option(metavar="OUT", hidden=True)] = None,
    executor: Annotated[str, typer.Option(hidden=True)] = "local",
    replay: Annotated[bool, typer.Option("--replay/--no-replay", hidden=True)] = True,
    goodput: Annotated[str | None, typer.Option(metavar="JOB", hidden=True)] = None,
    prices: Annotated[Path | None, typer.Option(metavar="FILE", hidden=True)] = None,
    maintenance: Annotated[Path | None, typer.Option(metavar="FILE", hidden=True)] = None,
    scheduler: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
    serving: Annotated[str | None, typer.Option(metavar="URL|SELECTOR", hidden=True)] = None,
    for_: Annotated[str | None, typer.Option("--for", metavar="TIME", hidden=True)] = None,
    every: Annotated[str | None, typer.Option(metavar="TIME", hidden=True)] = None,
    prometheus: Annotated[str | None, typer.Option(metavar="URL", hidden=True)] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", hidden=True)] = None,
    device: Annotated[str | None, typer.Option(metavar="NAME", hidden=True)] = None,
) -> None:
    """Show where the time of a job went, what the bottleneck is, and what to do about it.

    Judges the job's last attempt, of a long one the newest part. The whole life of a job: `tachoscope goodput`. Profiler traces:
    `tachoscope trace`. An inference server: `tachoscope serving`. Dumps of a flight recorder: `tachoscope hang`. Two runs:
    `tachoscope compare`.
    """
    verdict.prepare_process()
    former = FormerOptions(
        goodput=goodput, prices=prices, maintenance=maintenance, scheduler=tuple(scheduler or ()), tables=tables,
        perfetto=perfetto, executor=executor, replay=replay, serving=serving, for_=for_, every=every, prometheus=prometheus,
        save=save, device=device,
    )  # fmt: skip
    against = "--baseline" if baseline else "--baseline-job" if baseline_job else ""
    former_options.check(former, paths, job, store, against, gate=fail_on == Level.regression)
    if former.is_of_another_command:
        former_options.run(former, paths, job, store, format_, output, fail_on)
        return
    former_options.print_new_commands(former, job)
    places, window = places_of(paths, store), window_of(from_, to, last)
    kind = kind_of(places) if paths else Kind.RECORDS
    _check_kind(kind, places[0], former, window)
    if kind is Kind.TRACES:
        baselines.check_traces(places, baseline or [], baseline_job, gate=fail_on == Level.regression)
        _judge_traces(places, job, former, baseline or [], format_.value, output, fail_on)
        return
    from tachoscope_cli.inputs import judged

    report, then = judged.report_on(places, job, store, former.looking(job), kind=kind, window=window)
    if against:
        report = baselines.against(
            report, places, baseline or [], baseline_job, lambda where, name: judged.report_on(where, name)[0]
        )
    verdict.end(report, format_.value, output, fail_on, then=then)


def _check_kind(kind: Kind, place: str, former: FormerOptions, window: TimeWindow) -> None:
    """Refuse options that do not apply to this input, and print the command that handles it."""
    if former.of_traces and kind is not Kind.TRACES:
        raise TachoscopeError(f"{former.of_traces} works on profiler traces, and {place} is not a profiler trace")
    if window != TimeWindow() and kind is not Kind.RECORDS:
        raise TachoscopeError(f"--from, --to and --last choose a part of a job's records, and {place} is {kind.value}")
    if kind in _COMMANDS:
        print_notice(f"{place} is {kind.value}: continuing as `tachoscope {_COMMANDS[kind]}`")


def _judge_traces(
    places: list[str],
    job: str | None,
    former: FormerOptions,
    baseline: list[str],
    format_: str,
    output: Path | None,
    fail_on: Level | None,
) -> None:
    from tachoscope_cli.inputs import trace_report

    refuse_looks(former.looking(job).option_given)
    options = trace_report.Options(job, former.executor, former.replay, former.tables, former.perfetto, tuple(baseline))
    trace_report.run(places, options, format_, output, fail_on)
