"""`tachoscope trace`: where the time of profiler traces went."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tachoscope_cli.common import verdict
from tachoscope_cli.common.options import TEXT_OF_THREE, FormatOption
from tachoscope_cli.common.verdict import FailOnOption, OutputOption
from tachoscope_cli.inputs.places import Kind, kind_of, must_be_there
from tachoscope_core.errors import TachoscopeError


def trace(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Profiler traces of one job: files, directories, patterns. One per rank.")
    ],
    job: Annotated[str | None, typer.Option(help="Name of the job in the report. Default: the name of the file or folder.")] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Earlier traces to compare with: what became slower, by state, operator and kernel."),
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write all tables of the traces there, as Parquet and CSV.")
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Write the trace for ui.perfetto.dev, with ledger, findings and critical path."),
    ] = None,
    executor: Annotated[
        str, typer.Option(metavar="local|dask://HOST:PORT", help="Where the ranks' traces are analysed.")
    ] = "local",
    replay: Annotated[
        bool,
        typer.Option(
            "--replay/--no-replay", help="Replay the dependencies of a trace to say what a fix would bring; takes longer."
        ),
    ] = True,
    format_: FormatOption = TEXT_OF_THREE,
    output: OutputOption = None,
    fail_on: FailOnOption = None,
) -> None:
    """Show where the time of profiler traces went, of one rank or of all, and what to do about it.

    Traces of PyTorch's profiler, of Nsight Systems (exported), JAX and others in Chrome's format.
    """
    verdict.prepare_process()
    must_be_there([*paths, *(baseline or ())], "profiler traces: files, a directory or a pattern of them")
    if (found := kind_of(paths)) is not Kind.TRACES:
        raise TachoscopeError(f"{paths[0]} is not a profiler trace but {found.value}", fix=f"tachoscope analyze {paths[0]}")
    from tachoscope_cli.inputs import baselines
    from tachoscope_cli.inputs.traces import begin_reading

    baselines.check_traces(paths, baseline or [], None, gate=False)
    if executor == "local":
        begin_reading(paths)
    from tachoscope_cli.inputs import trace_report

    options = trace_report.Options(job, executor, replay, tables, perfetto, tuple(baseline or ()))
    trace_report.run(paths, options, format_.value, output, fail_on)
