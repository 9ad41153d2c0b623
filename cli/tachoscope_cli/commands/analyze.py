"""`tachoscope analyze`: what it is asked for, and of which kind: the records of an attempt, those of a whole life, or traces."""

from __future__ import annotations

import gc
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tachoscope_cli.common.options import TEXT_OF_THREE, FormatOption, StoreOption, needs_analysis, store_url
from tachoscope_cli.common.output import show
from tachoscope_cli.inputs import baselines
from tachoscope_cli.inputs.serving_options import Looking
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode

if TYPE_CHECKING:
    from tachoscope_core.report.report import Report

_FEW_COLLECTIONS = 100_000
"""Objects between two collections in a process that lives for seconds and makes few cycles: by default they take a tenth of it."""


Level = StrEnum("Level", ["critical", "warning", "regression"])


def analyze(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...",
            help="A store, a job's folder in it, spool directories or segments, a saved report; or "
            "profiler traces of one job: files, directories, patterns; or the recorded operations of a pipeline job (Parquet); "
            "or dumps of PyTorch's flight recorder. "
            "Default: the store.",
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(help="The job to judge. Default: the one written last.")] = None,
    goodput: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="The whole life of this job, over all its attempts: where its allocated time went."),
    ] = None,
    store: StoreOption = None,
    format_: FormatOption = TEXT_OF_THREE,
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
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
    tables: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write all tables of the traces there, as Parquet and CSV.")
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Write the trace back for ui.perfetto.dev, with ledger, findings and critical path."),
    ] = None,
    executor: Annotated[
        str, typer.Option(metavar="local|dask://HOST:PORT", help="Where the ranks' traces are analysed.")
    ] = "local",
    replay: Annotated[  # noqa: FBT002
        bool,
        typer.Option(
            "--replay/--no-replay", help="Replay the dependencies of a trace to say what a fix would bring; takes longer."
        ),
    ] = True,
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --goodput: prices of an hour of each device, instead of the shipped ones."),
    ] = None,
    maintenance: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --goodput: planned maintenance, which counts for nothing.")
    ] = None,
    serving: Annotated[
        str | None,
        typer.Option(
            metavar="URL|SELECTOR",
            help="A live inference server by its metrics page, such as http://HOST:8000/metrics, is looked at and judged. "
            "With --prometheus, the series to read, such as 'job=\"vllm\"'.",
        ),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TIME",
            help="With --serving: how long to look. Default: 60s. Of a Prometheus or of records: how far back. Default: 1h.",
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --serving: time between two looks. Default: 1s, less for a short look.")
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="With --serving: read the server's metrics from this Prometheus instead.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --serving: keep what was seen there, to be analyzed again.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The accelerator of the server, such as 'NVIDIA H100': what its memory can do at most."),
    ] = None,
    scheduler: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|slurm:JOBID|kubernetes:NAMESPACE/NAME",
            help="With --goodput: what the scheduler says of the job: its queue and how long it held its nodes.",
        ),
    ] = None,
) -> None:
    """Say where the time of a job went, what the bottleneck is, and what to do about it."""
    needs_analysis()
    gc.set_threshold(_FEW_COLLECTIONS)
    if store and paths:
        raise TachoscopeError("give either PATH or --store, not both")
    of_life = {"--prices": prices, "--maintenance": maintenance, "--scheduler": scheduler}
    looking = Looking(serving or "", for_, every, prometheus, save, device or "", job or "")
    of_traces = {"--tables": tables, "--perfetto": perfetto, "--executor": executor != "local"}
    for_life, for_traces = (next((name for name, value in row.items() if value), "") for row in (of_life, of_traces))
    _check_together(goodput, job, for_life, for_traces)
    against = "--baseline" if baseline else "--baseline-job" if baseline_job else ""
    gate = fail_on == Level.regression
    baselines.check(against, "--goodput" if goodput else "--serving" if serving is not None else "", gate=gate)
    if serving is not None:
        if paths or store or goodput or for_traces:
            raise TachoscopeError("--serving looks at a live server, and goes with no PATH, --store, --goodput or option of traces")
        report = _of_server(looking)
        show(report, format_.value, output)
        return _fail(fail_on, report)
    _check_looks("--prometheus" if prometheus else "--save" if save else "--every" if every else "")
    places = _places(paths, store, for_traces)
    if goodput:
        from tachoscope_cli.inputs import job_life as life_module

        _check_looks(looking.said)
        report = life_module.analyze(places, goodput, life_module.Options(prices, maintenance, tuple(scheduler or ())))
        show(report, format_.value, output)
    elif paths and _are_traces(places, for_traces):
        from tachoscope_cli.inputs import trace_report as trace_module

        _check_looks(looking.said)
        baselines.check_traces(places, baseline or [], baseline_job, gate=gate)
        options = trace_module.Options(job, executor, replay, tables, perfetto, tuple(baseline or ()))
        analysis = trace_module.analyze(places, options, Console(stderr=True))
        show(analysis.report, format_.value, output)
        analysis.write_further(options)
        report = analysis.report
    else:
        report, then = _of_records(places, job, store, looking)
        if against:
            report = _against(report, places, baseline, baseline_job)
        show(report, format_.value, output, then=then)
    gc.freeze()  # the process ends now: walking all its objects once more would take a tenth of a second
    return _fail(fail_on, report)


def _fail(fail_on: Level | None, report: Report) -> None:
    """End with the exit code that says that a finding is as severe as that."""
    if fail_on is not None and _is_reached(fail_on, report):
        raise typer.Exit(ExitCode.FOUND)


def _against(report: Report, places: list[str], baseline: list[str] | None, job: str | None) -> Report:
    """Return the report, compared with the baseline's."""

    def read(where: list[str], name: str | None) -> Report:
        return _of_records(where, name, None, Looking(""))[0]

    return baselines.against(report, places, baseline or [], job, read)


def _check_looks(option: str) -> None:
    """Refuse an option that is about inference servers with what is none."""
    if option:
        raise TachoscopeError(
            f"{option} is about an inference server", fix="tachoscope analyze --serving http://HOST:PORT/metrics --for 60s"
        )


def _of_server(looking: Looking) -> Report:
    """Look at a live server, and judge it."""
    from tachoscope_cli.inputs import live_server as serving

    return serving.analyze(looking, Console(stderr=True))


def _is_reached(level: Level, report: Report) -> bool:
    from tachoscope_core.report.report import worst_severity

    regression = report.comparison.severity if report.comparison else None
    if level == Level.regression:
        return report.comparison is not None and report.comparison.verdict == "slower"
    worst = {worst_severity(report.findings), regression}
    return "critical" in worst or ("warning" in worst and level == Level.warning)


def _check_together(goodput: str | None, job: str | None, for_life: str, for_traces: str) -> None:
    """Refuse options that do not go together; `for_life` and `for_traces` are the first of their kind, or empty."""
    if goodput is not None and not goodput.strip():
        raise TachoscopeError("--goodput names no job", fix="tachoscope store ls")
    if for_life and not goodput:
        raise TachoscopeError(f"{for_life} goes with --goodput", fix="tachoscope analyze --goodput JOB")
    if goodput and job not in {None, goodput}:
        raise TachoscopeError(f"--goodput {goodput} and --job {job} name two jobs", fix=f"tachoscope analyze --goodput {goodput}")
    if goodput and for_traces:
        raise TachoscopeError(f"{for_traces} works on profiler traces, and --goodput on the records of a job")


def _places(paths: list[str] | None, store: str | None, for_traces: str) -> list[str]:
    """Return where to read: the named paths, else the store."""
    from tachoscope_cli.inputs.records import is_store

    if for_traces and not paths:
        raise TachoscopeError(f"{for_traces} works on profiler traces, and none is named", fix="tachoscope analyze trace.json.gz")
    places = paths or [store_url(store)]
    if not paths and "://" not in places[0] and not is_store(places[0]):
        raise TachoscopeError(f"store {places[0]} is empty", fix="run something first: tachoscope run -- python train.py")
    return places


def _of_records(places: list[str], job: str | None, store: str | None, looking: Looking) -> tuple[Report, list[str]]:
    """Return the report on a job's last attempt, or the saved one that is named, and lines to follow it."""
    from tachoscope_analyzers.job.report import analyze as judge
    from tachoscope_analyzers.records.load import serving_job
    from tachoscope_cli.inputs import records as path_module
    from tachoscope_cli.inputs.job_life import other_attempts

    saved = path_module.saved_report(places)
    if saved is not None:
        return saved, []
    dumps = path_module.flight_recorder_dumps(places)
    if dumps:
        from tachoscope_analyzers.flight_recorder.read import read_sound
        from tachoscope_analyzers.flight_recorder.report import report as stuck

        _check_looks(looking.said)
        sound, damaged = read_sound(dumps)
        return stuck(sound, dumps, job or path_module.name_of(places), damaged), []
    operations = path_module.operations(places)
    if operations is not None:
        from tachoscope_analyzers.replay.report import report as replayed

        _check_looks(looking.said)
        return replayed(operations, job or ""), []
    recording = path_module.recording(places)
    if recording is not None:
        from tachoscope_cli.inputs.live_server import analyze_recording

        _check_looks("--for" if looking.for_ else "")
        return analyze_recording(recording, job or "", looking.device), []
    records = path_module.records_of(places, job)
    if serving_job(records):
        from tachoscope_cli.inputs.live_server import analyze_service

        return analyze_service(records, looking), []
    _check_looks(looking.said)
    return judge(records), other_attempts(records, store)


def _are_traces(places: list[str], for_traces: str) -> bool:
    """Say whether the places are traces; an option that needs them is refused for other things."""
    from tachoscope_cli.inputs.records import flight_recorder_dumps, operations, recording
    from tachoscope_cli.inputs.traces import are_traces

    others = recording(places) or operations(places) or flight_recorder_dumps(places)
    if not others and are_traces(places):
        return True
    if for_traces:
        raise TachoscopeError(f"{for_traces} works on profiler traces, and {places[0]} is no profiler trace")
    return False
