"""Findings and their sizes in words, for terminal, page and explorer alike."""

from __future__ import annotations

from tachoscope_core.report.report import Finding, Report
from tachoscope_core.report.taxonomy import HEALTHY
from tachoscope_show.report import trend_words
from tachoscope_show.serving import words as serving_words
from tachoscope_show.text.units import percent, seconds, size

WARNING_SHARE_TEXT = "10 %"


SMALL_LOSSES = "Small losses"
"""Heading of the findings of losses that are too small for a warning."""


def nothing_found(report: Report) -> bool:
    """Return whether data that can be trusted hold no finding but small losses, and that the step is as it should be."""
    trusted = all(note.severity != "bad" for note in report.quality) and not phases_unknown(report)
    trusted = trusted and not (report.serving and serving_words.broken(report.serving))
    return trusted and all(finding.class_ in HEALTHY for finding in large(report))


def phases_unknown(report: Report) -> bool:
    """Return whether a server did not say where its requests were, so that none of its bottlenecks could be seen."""
    return report.serving is not None and report.goodput is None


def large(report: Report) -> list[Finding]:
    """Return the findings but those of small losses."""
    return [finding for finding in report.findings if not finding.small]


def small(report: Report) -> list[Finding]:
    """Return the findings of small losses."""
    return [finding for finding in report.findings if finding.small]


def verdict_text(report: Report) -> str:
    """Return what it means that nothing was found."""
    if is_hang_report(report):
        return "no rank keeps the others waiting in these dumps"
    what = "lost work, checkpoint stall or hang" if report.life else "bottleneck"
    return f"no {what} above {WARNING_SHARE_TEXT}"


def productive(report: Report) -> str:
    """Return the share of productive time in words: see `productive_name`."""
    return "not known" if report.goodput is None else percent(report.goodput)


def productive_name(report: Report) -> str:
    """Return what that share is called: goodput of the allocated time of a whole life, compute share of the time of steps."""
    return "goodput" if report.life else "productive share" if report.serving else "compute share"


def quantity(value: float, unit: str) -> str:
    """Return an evidence value with its unit."""
    if unit.startswith("seconds"):
        return seconds(value)
    if unit == "ratio":
        return percent(value)
    if unit == "bytes":
        return f"-{size(-value)}" if value < 0 else size(value)
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{number} {unit.split(';')[0]}".strip()


def is_hang_report(report: Report) -> bool:
    """Return whether the report is on a moment in which a job stands still, not on steps: one made of a flight recorder's dumps."""
    return report.window.steps == 0 and report.life is None and report.serving is None


def share_text(finding: Finding, report: Report) -> str:
    """Return how large a finding is, with its interval."""
    if is_hang_report(report):
        return "nothing runs (no interval: it is one moment)"
    low, high = finding.share_ci
    interval = f"95 % interval {low * 100:.1f} to {high * 100:.1f} %" if report.window.steps > 1 else "of one step, so no interval"
    return f"{percent(finding.share)} of the {_share_of(finding, report)} ({interval})"


def _share_of(finding: Finding, report: Report) -> str:
    if report.serving and finding.evidence:
        return serving_words.share_of(finding)
    return "allocated time" if report.life else "step"


def tells_speedup(finding: Finding, report: Report) -> bool:
    """Return whether there is something to say of what fixing it would bring."""
    if is_hang_report(report) or not finding.seconds_per_step:
        return False
    return finding.class_ not in HEALTHY and not (report.serving and finding.speedup_if_fixed is None)


def unit_of(report: Report) -> str:
    """Return what seconds are given for: a step of training, or a request."""
    return "request" if report.serving else "step"


def unit_seconds(report: Report) -> float:
    """Return the mean seconds of a step; of a server, the seconds that requests spent in the window for each that was served."""
    return report.ledgers[0].wall_seconds / max(report.window.steps, 1) if report.serving else report.step_seconds.mean


def loss_text(finding: Finding, report: Report) -> str:
    """Return the seconds of a finding and what they are of."""
    if report.life:
        return f"{seconds(finding.seconds_per_step)} for each new step"
    if report.serving:
        return serving_words.loss(finding, report)
    if is_hang_report(report):
        if report.stacks:
            return f"no step for {seconds(finding.seconds_per_step)} when it was noticed"
        return "others wait; since when the dumps do not tell"
    if not finding.seconds_per_step:
        return "no time of the steps"
    return f"{seconds(finding.seconds_per_step)} of {seconds(report.step_seconds.mean)}"


def culprits_text(finding: Finding, report: Report) -> str:
    """Return whose loss it is, after the class: ranks; a server's is that of all requests."""
    return "" if report.serving else f", {trend_words.ranks_text(finding.ranks)}"
