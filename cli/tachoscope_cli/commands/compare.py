"""`tachoscope compare`: two runs of a job, or two profiler traces."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from tachoscope_cli.common import verdict
from tachoscope_cli.common.options import TEXT_OF_THREE, FormatOption, StoreOption
from tachoscope_cli.common.verdict import FailOnLevelOption, Level, OutputOption
from tachoscope_cli.inputs.places import Kind, kind_of, must_be_there, places_of
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from tachoscope_core.report.report import Report


def compare(
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="A job of the store, or a path: a job's folder, a spool, a saved report, a trace.")
    ],
    old: Annotated[str, typer.Argument(metavar="OLD", help="The run to compare with: a job or a path, as above.")],
    store: StoreOption = None,
    format_: FormatOption = TEXT_OF_THREE,
    output: OutputOption = None,
    fail_on: FailOnLevelOption = None,
) -> None:
    """Show what became slower from one run to another, by state, and whether the whole step became slower.

    For profiler traces it also says which operators and kernels.
    """
    verdict.prepare_process()
    from tachoscope_cli.inputs import baselines, judged

    (places, job), (baseline, baseline_job) = _run(new, store), _run(old, store)
    kind = kind_of(places)
    if kind is Kind.TRACES:
        from tachoscope_cli.inputs import trace_report

        baselines.check_traces(places, baseline, baseline_job, gate=fail_on == Level.regression)
        trace_report.run(places, trace_report.Options(baseline=tuple(baseline)), format_.value, output, fail_on)
        return

    def read(where: list[str], name: str | None) -> Report:
        return judged.report_on(where, name)[0]

    report = judged.report_on(places, job, kind=kind)[0]
    report = baselines.against(report, places, baseline, baseline_job, read)
    verdict.end(report, format_.value, output, fail_on)


def _run(word: str, store: str | None) -> tuple[list[str], str | None]:
    """Return the place of a run, and its job's name in a store; existing paths and URLs are not jobs."""
    if not word.strip():
        raise TachoscopeError("the name of a run is empty", fix="tachoscope store ls")
    if "://" in word or os.path.exists(word) or os.sep in word:
        must_be_there([word], "a job of the store, or a path that exists")
        return [word], None
    try:
        return places_of(None, store), word
    except TachoscopeError as error:
        raise TachoscopeError(f"{word!r} is not a file or folder, and {error}") from None
