"""Panels about `tachoscope watch`: whether it looks at all jobs, and in time. It is of no node: whatever nodes are chosen."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.metrics.watch import WATCH_CYCLE_SECONDS, WATCH_JOBS, WATCH_LAST_CYCLE
from tachoscope_core.report import palette
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import ColorStep, PanelText, PlacedPanel, Query, stat, timeseries
from tachoscope_dashboards.parts.variables import WHERE

_NO_WATCH = "no watch is scraped"
_COLORS = {"judged": palette.OK, "unjudged": palette.UNKNOWN, "failed": palette.BAD, "left_out": palette.WARN}
_INTERVAL_SECONDS, _STALLED_SECONDS = 60.0, 600.0
"""As it comes; and from which on WatchStalled fires."""


def watch(policy: Policy) -> list[PlacedPanel]:
    """Return when it last looked, how long a look takes, and what became of the jobs."""
    stalled, failing = runbook(policy, "WatchStalled"), runbook(policy, "WatchJobsFailing")
    return [
        stat(
            "Last analysis of all jobs",
            PanelText(
                "Time since a cycle of the watch last ended.",
                "below two minutes",
                "it has stopped, or cannot read its store; its alerts cannot fire meanwhile",
                _NO_WATCH,
            ),
            Query(f"time() - max({WATCH_LAST_CYCLE.name}{{{WHERE}}})"),
            unit="s",
            height=8,
            steps=(ColorStep(3 * _INTERVAL_SECONDS, palette.WARN), ColorStep(_STALLED_SECONDS, palette.BAD)),
            links=[stalled],
        ),
        timeseries(
            "Live jobs by result of the watch",
            PanelText(
                "Jobs per cycle: judged (a report), unjudged (too few steps, or it serves requests), failed (could not be read), "
                "left out (beyond the first 1,000). The state of jobs that were not judged is unknown.",
                "nearly all judged",
                "failed: the log of the watch names them and says why",
                _NO_WATCH,
            ),
            [Query(f"sum by (state) ({WATCH_JOBS.name}{{{WHERE}}}) > 0", "{{state}}")],
            unit="short",
            stacked=True,
            colors=_COLORS,
            links=[failing],
        ),
        timeseries(
            "Duration of a cycle",
            PanelText(
                "Time that the last cycle of the watch took for all jobs.",
                f"below the interval, {_INTERVAL_SECONDS:g} s as it comes",
                "more jobs than it has cores for: `--workers`; or agents ship too often: once a minute is enough for it",
                _NO_WATCH,
            ),
            [Query(f"max by (instance) ({WATCH_CYCLE_SECONDS.name}{{{WHERE}}})", "{{instance}}")],
            unit="s",
            width=8,
            steps=(ColorStep(_INTERVAL_SECONDS, palette.WARN),),
            links=[stalled],
        ),
    ]
