"""The table of jobs: from summaries to rows, sums and choices. Pure functions, without a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from tachoscope_analyzers.fleet.job_summary import GravestFinding, JobSummary, standing
from tachoscope_core.report.taxonomy import BY_SLUG
from tachoscope_explorer.page.view import View, address
from tachoscope_explorer.sources.job_slos import JobSlos
from tachoscope_show.report.trend_words import ranks_text
from tachoscope_show.text.units import percent, seconds

STATUSES = ("running", "completed", "failed", "unknown")
SEVERITIES = ("critical", "warning", "info", "healthy", "cannot be determined", "not analyzed")


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job of the list. summary: None: it was not analyzed yet. written: Unix seconds of its last write."""

    job: str
    written: float
    summary: JobSummary | None
    status: str = "unknown"

    @property
    def severity(self) -> str:
        """One of `SEVERITIES`, or what a newer version calls it."""
        if self.summary is None:
            return "not analyzed"
        if self.summary.worst is not None:
            return self.summary.worst.severity
        return "healthy" if self.summary.healthy else "cannot be determined"


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What is looked for; empty: everything. Of several values of one kind a job must have one."""

    name: str = ""
    statuses: Sequence[str] = ()
    severities: Sequence[str] = ()
    classes: Sequence[str] = ()

    def matches(self, row: JobRow) -> bool:
        """Return whether a row passes each filter that is set."""
        class_ = row.summary.worst.class_ if row.summary is not None and row.summary.worst is not None else ""
        return (
            self.name.strip().casefold() in row.job.casefold()
            and (not self.statuses or row.status in self.statuses)
            and (not self.severities or row.severity in self.severities)
            and (not self.classes or class_ in self.classes)
        )


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """All jobs in a few numbers.

    Attributes:
        looked_at: of them so many were judged. critical: with a critical finding.
        idle: cost by currency. priced: from so many jobs; unpriced: so many more have idle time of which no price is known.
        idle_hours: of all that were judged, in hours of ranks and GPUs; None: of none it is known.
    """

    jobs: int
    looked_at: int
    running: int
    critical: int
    idle: dict[str, float]
    priced: int
    unpriced: int
    idle_hours: float | None


def rows(times: Mapping[str, float], summaries: Mapping[str, JobSummary], now: float) -> list[JobRow]:
    """Return the jobs, the one that was written last first."""
    found = [JobRow(job, at, summaries.get(job)) for job, at in sorted(times.items(), key=lambda item: (-item[1], item[0]))]
    return [row if row.summary is None else replace(row, status=standing(row.summary, now)) for row in found]


def summarise(found: Sequence[JobRow]) -> FleetSummary:
    """Return how many jobs there are of each kind, and what the idle time of the judged ones costs."""
    judged = [row.summary for row in found if row.summary is not None]
    idle: defaultdict[str, float] = defaultdict(float)
    for one in judged:
        if one.idle_money is not None:
            idle[one.currency] += one.idle_money
    hours = [one.idle_hours for one in judged if one.idle_hours is not None]
    priced = sum(one.idle_money is not None for one in judged)
    return FleetSummary(
        jobs=len(found),
        looked_at=len(judged),
        running=sum(row.status == "running" for row in found),
        critical=sum(row.severity == "critical" for row in found),
        idle=dict(idle),
        priced=priced,
        unpriced=len(hours) - priced,
        idle_hours=sum(hours) if hours else None,
    )


def classes(found: Iterable[JobRow]) -> list[str]:
    """Return the classes that can be looked for: those of the taxonomy, then those that jobs have and it lacks."""
    seen = {row.summary.worst.class_ for row in found if row.summary is not None and row.summary.worst is not None}
    return [*BY_SLUG, *sorted(seen - BY_SLUG.keys())]


def finding(summary: JobSummary | None) -> str:
    """Return what is wrong with a job, in words."""
    if summary is None:
        return "not analyzed yet"
    if summary.worst is None:
        return "nothing found" if summary.healthy else summary.reason or "no reason is known"
    worst = summary.worst
    title = BY_SLUG[worst.class_].title if worst.class_ in BY_SLUG else "of a class that this version does not know"
    bad = f" — but {summary.reason}" if summary.reason else ""
    return f"{worst.class_}: {title}; {_loss(worst, summary)}{bad}"


def _loss(worst: GravestFinding, summary: JobSummary) -> str:
    if summary.kind == "service":
        return f"{seconds(worst.seconds_per_step)} a request"
    unit = "a new step, over the whole life" if worst.of_life else "a step"
    return f"{seconds(worst.seconds_per_step)} {unit} ({percent(worst.share)}), {ranks_text(worst.ranks)}"


def table(found: Sequence[JobRow], slos: JobSlos) -> pd.DataFrame:
    """Return the rows as they are shown, a job each; what is not known is missing, and nowhere 0."""
    cells = [_cells(row, slos) for row in found]
    frame = pd.DataFrame(cells, columns=list(_cells(JobRow("", 0.0, None), slos)))
    for name in ("goodput", "mean step", "idle hours", "idle cost"):
        frame[name] = frame[name].astype("float64")
    for name in ("ranks", "steps"):
        frame[name] = frame[name].astype("Int64")
    return frame


def money(amount: float, currency: str) -> str:
    """Return an amount in words; a little is not nothing."""
    return f"< 0.01 {currency}" if 0 < amount < 0.005 else f"{amount:,.2f} {currency}"


def _short(value: float | None) -> float | None:
    """Return a number with two digits after the point, or two that say something where it is small."""
    return None if value is None else round(value, 2) if abs(value) >= 0.1 else float(f"{value:.2g}")


def _cells(row: JobRow, slos: JobSlos) -> dict[str, object]:
    one = row.summary
    stepped = one is not None and bool(one.step_seconds)
    return {
        "job": row.job,
        "status": row.status if one is not None else None,
        "severity": row.severity,
        "worst finding": finding(one),
        "goodput": one.goodput * 100 if one is not None and one.goodput is not None else None,
        "step time": one.step_seconds if one is not None and stepped else [],
        "mean step": one.mean_step if one is not None and stepped else None,
        "objectives": slos.describe(row.job, row.written),
        "idle hours": _short(one.idle_hours) if one is not None else None,
        "idle cost": _short(one.idle_money) if one is not None else None,
        "currency": one.currency if one is not None else "",
        "ranks": (one.ranks or None) if one is not None else None,
        "steps": (one.requests if one.kind == "service" else one.steps or None) if one is not None else None,
        "last written": pd.Timestamp(row.written, unit="s", tz="UTC"),
        "compare": address("compare", View(job=row.job)).lstrip("/"),
    }
