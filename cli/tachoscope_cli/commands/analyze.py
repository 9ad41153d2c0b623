"""`tachoscope analyze`: where the time of a job's last attempt went. What lies there and is something else goes to its command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tachoscope_cli.commands import former_options
from tachoscope_cli.commands.former_options import FormerOptions
from tachoscope_cli.common import verdict
from tachoscope_cli.common.options import TEXT_OF_THREE, FormatOption, StoreOption, print_notice
from tachoscope_cli.common.verdict import Level, OutputOption
from tachoscope_cli.inputs import baselines
from tachoscope_cli.inputs.places import Kind, kind_of, places_of
from tachoscope_cli.inputs.serving_options import refuse_looks
from tachoscope_cli.inputs.time_window import TimeWindow, window_of
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode

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
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="MOMENT", help="Judge what came since, such as 2026-03-01T14:30 (local time) or ...T14:30Z."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="Judge what came until then; alone, or with --from or --last.")
    ] = None,
    last: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Judge so long before the job's last step, or before --to: 90s, 30m, 2h, 1d."),
    ] = None,
    store: StoreOption = None,
    format_: FormatOption = TEXT_OF_THREE,
    output: OutputOption = None,
    fail_on: Annotated[
        Level | None,
        typer.Option(
            help=f"Exit with {ExitCode.FOUND} on a finding this severe, or on a step this much slower than the baseline's; "
            "regression: on the latter only."
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="An earlier run to compare with: of records a store, a job's folder, a spool or a saved report; of traces their "
            "files. What became slower, by state; of traces by operator and kernel, too.",
        ),
    ] = None,
    baseline_job: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The job to compare with. Default: the one written last in --baseline."),
    ] = None,
    tables: Annotated[Path | None, typer.Option(metavar="DIR", hidden=True)] = None,
    perfetto: Annotated[Path | None, typer.Option(metavar="OUT", hidden=True)] = None,
    executor: Annotated[str, typer.Option(hidden=True)] = "local",
    replay: Annotated[bool, typer.Option("--replay/--no-replay", hidden=True)] = True,  # noqa: FBT002
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
    """Say where the time of a job went, what the bottleneck is, and what to do about it.

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
    places = places_of(paths, store)
    kind = kind_of(places) if paths else Kind.RECORDS
    if former.of_traces and kind is not Kind.TRACES:
        raise TachoscopeError(f"{former.of_traces} works on profiler traces, and {places[0]} is not a profiler trace")
    window = window_of(from_, to, last)
    if window != TimeWindow() and kind is not Kind.RECORDS:
        raise TachoscopeError(f"--from, --to and --last choose a part of a job's records, and {places[0]} is {kind.value}")
    if kind in _COMMANDS:
        print_notice(f"{places[0]} is taken for {kind.value}: going on as `tachoscope {_COMMANDS[kind]}`")
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
