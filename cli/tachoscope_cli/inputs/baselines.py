"""The baseline of a training's records: which report it is, and what of the two goes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from tachoscope_core.report.report import Report

_ONE_STORE = "tachoscope analyze --job NEW --baseline-job OLD"
_ALIKE = "compare records with records, or profiler traces with profiler traces"


def against(
    report: Report, places: Sequence[str], baseline: Sequence[str], job: str | None, read: Callable[[list[str], str | None], Report]
) -> Report:
    """Return the report, compared with the baseline.

    Args:
        places: where the report came from; the baseline lies there, too, where `baseline` is empty. job: which of several it is.
        read: makes the report on the records in some places, of a job.

    Raises:
        TachoscopeError: the baseline are traces, the same run, or nothing that can be compared.
    """
    from tachoscope_analyzers.compare.runs import compared
    from tachoscope_cli.inputs.traces import are_traces

    where = list(baseline or places)
    if baseline and are_traces(where):
        raise TachoscopeError(
            f"{places[0]} holds records, and the baseline {where[0]} is a profiler trace",
            fix=_ALIKE,
        )
    other = read(where, job)
    if job is not None and other.job != job:
        raise TachoscopeError(f"{where[0]} is job {other.job!r}, and --baseline-job names {job!r}", fix="leave --baseline-job out")
    if (other.job, other.window) == (report.job, report.window):
        raise TachoscopeError(f"job {report.job!r} is its own baseline", fix=f"name another run, as in {_ONE_STORE}")
    return compared(report, other)


def check(against: str, *, gate: bool) -> None:
    """Refuse a gate without a run to compare with; `against` is the option that names it, or empty.

    Args:
        gate: whether a regression shall end the command with an exit code.

    Raises:
        TachoscopeError: there is none.
    """
    if gate and not against:
        raise TachoscopeError("--fail-on regression needs a run to compare with", fix=f"{_ONE_STORE} --fail-on regression")


def check_traces(places: Sequence[str], baseline: Sequence[str], job: str | None, *, gate: bool) -> None:
    """Refuse, of traces, what is about records, and a baseline that is not a trace.

    Raises:
        TachoscopeError: as said.
    """
    from tachoscope_cli.inputs.traces import are_traces

    if job:
        raise TachoscopeError(f"--baseline-job is about records, and {places[0]} is a profiler trace", fix="--baseline TRACE")
    if gate:
        raise TachoscopeError(
            f"--fail-on regression is about records, and {places[0]} is a profiler trace, with too few steps to estimate noise",
            fix="compare two runs under `tachoscope run`",
        )
    if baseline and not are_traces(list(baseline)):
        raise TachoscopeError(f"{places[0]} is a profiler trace, and the baseline {baseline[0]} is not", fix=_ALIKE)
