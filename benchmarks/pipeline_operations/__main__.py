"""Judges recorded operations of a pipeline job: `python -m benchmarks.pipeline_operations trace-NAME.parquet [--format json]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from benchmarks.pipeline_operations.report import judged
from benchmarks.pipeline_operations.step_sum import table

from tachoscope_cli.common.options import TEXT_OF_THREE, FormatOption
from tachoscope_cli.common.output import console, show
from tachoscope_core.errors import TachoscopeError


def main(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Operations in the format of StragglerAnalysis, as Parquet.")],
    format_: FormatOption = TEXT_OF_THREE,
) -> None:
    """Say which cause costs a pipeline job how much of its step."""
    try:
        report, summands = judged(path)
    except TachoscopeError as error:
        sys.exit(f"{error}")
    show(report, format_.value)
    if format_.value == "text" and summands:
        console().print(table(summands, report.step_seconds.mean))


typer.run(main)
