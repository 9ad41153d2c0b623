"""What commands that judge share: the options of their report, how severe a finding ends them with an exit code, and their end."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tachoscope_cli.common.options import needs_analysis
from tachoscope_cli.common.output import show
from tachoscope_core.exit_codes import ExitCode

if TYPE_CHECKING:
    from tachoscope_core.report.report import Report

Level = StrEnum("Level", ["critical", "warning", "regression"])
Severity = StrEnum("Severity", ["critical", "warning"])
OutputOption = Annotated[Path | None, typer.Option("--output", help="Write to this file instead of the terminal.")]
FailOnOption = Annotated[Severity | None, typer.Option("--fail-on", help=f"Exit with {ExitCode.FOUND} on a finding this severe.")]
FailOnLevelOption = Annotated[
    Level | None,
    typer.Option(
        "--fail-on",
        help=f"Exit with {ExitCode.FOUND} on a finding this severe, or on a step this much slower than the baseline's; "
        "regression: on a slower step only.",
    ),
]
_FEW_COLLECTIONS = 100_000
"""Objects between two collections in a process that lives for seconds and makes few cycles: by default they take a tenth of it."""


def prepare_process() -> None:
    """Prepare this process for judging.

    Raises:
        TachoscopeError: a package is missing.
    """
    needs_analysis()
    gc.set_threshold(_FEW_COLLECTIONS)


def end(
    report: Report, format_: str, output: Path | None, fail_on: Level | Severity | None = None, *, then: Sequence[str] = ()
) -> None:
    """Show a report, and end with the exit code that says that a finding is as severe as `fail_on`.

    Args:
        then: lines that follow the report in text.
    """
    show(report, format_, output, then=then)
    exit_if_reached(fail_on, report)


def exit_if_reached(fail_on: Level | Severity | None, report: Report) -> None:
    """End with the exit code that says that a finding is as severe as that."""
    gc.freeze()  # the process ends now: walking all its objects once more would take a tenth of a second
    if fail_on is not None and is_reached(Level(fail_on.value), report):
        raise typer.Exit(ExitCode.FOUND)


def is_reached(level: Level, report: Report) -> bool:
    """Return whether a finding, or the comparison with a baseline, is as severe as that."""
    from tachoscope_core.report.report import worst_severity

    if level == Level.regression:
        return report.comparison is not None and report.comparison.verdict == "slower"
    worst = {worst_severity(report.findings), report.comparison.severity if report.comparison else None}
    return "critical" in worst or ("warning" in worst and level == Level.warning)
