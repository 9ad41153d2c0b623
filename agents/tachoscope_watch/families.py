"""Metrics of what is watched: bounded by jobs and by classes, whatever is in the store."""

from __future__ import annotations

from collections.abc import Sequence

from tachoscope_analyzers.classify.communication.network_places import part_in
from tachoscope_core.metrics import watch as names
from tachoscope_core.metrics.training import BOTTLENECK, COMPUTE_SHARE, SAME_FAILURE, SLOW_LINKS
from tachoscope_core.report.taxonomy import HEALTHY
from tachoscope_service.metrics.family import Family, Point, with_namespaces
from tachoscope_watch.cycle import Failed
from tachoscope_watch.view import JobView

MOST_JOBS = 1000
MOST_CLASSES = 5


def families(
    views: Sequence[JobView], failed: Sequence[Failed], *, seconds: float, ended: float, watch_share: float = 1.0
) -> list[Family]:
    """Return all metrics of a cycle that took `seconds` and ended at `ended`, Unix seconds; `watch_share`: its part of the jobs."""
    shown = views[:MOST_JOBS]
    judged = [view for view in shown if view.report is not None]
    counts = {
        "judged": len(judged),
        "unjudged": len(shown) - len(judged),
        "failed": len(failed),
        "left_out": len(views) - len(shown),
    }
    namespaces = {view.job: view.namespace for view in shown}
    found = [
        Family(BOTTLENECK, [point for view in shown for point in _bottlenecks(view)]),
        Family(SLOW_LINKS, [point for view in shown for point in _slow_links(view)]),
        Family(COMPUTE_SHARE, [((view.job,), share) for view in shown if (share := _compute_share(view)) is not None]),
        Family(SAME_FAILURE, [((view.job,), float(view.failure.policy == "stop")) for view in shown if view.failure is not None]),
        Family(names.WATCH_JOBS, [((state,), float(counts[state])) for state in names.WATCH_JOBS.states]),
        # While the first cycle judges there is none yet that ended: 0 would be one that ended long ago.
        Family(names.WATCH_CYCLE_SECONDS, [((), seconds)] if ended else []),
        Family(names.WATCH_LAST_CYCLE, [((), ended)] if ended else []),
        Family(names.WATCH_SHARE, [((), watch_share)]),
    ]
    return with_namespaces(found, lambda job: namespaces.get(job, ""))


def _compute_share(view: JobView) -> float | None:
    """Return the share of its last steps that a job computes; 0 while it hangs, whatever these had."""
    if view.state == "hung":
        return 0.0
    return view.report.goodput if view.report is not None else None


def _bottlenecks(view: JobView) -> list[Point]:
    """Return the largest share of each class, of several findings the worst one's. While a job hangs only that takes its time."""
    if view.hang is not None:
        return [((view.job, view.hang.class_), view.hang.share)]
    shares: dict[str, float] = {}
    for finding in view.report.findings if view.report is not None else []:
        if finding.class_ not in HEALTHY and finding.severity != "info":
            shares[finding.class_] = max(finding.share, shares.get(finding.class_, 0.0))
    largest = sorted(shares.items(), key=lambda pair: -pair[1])[:MOST_CLASSES]
    return [((view.job, class_), share) for class_, share in largest]


def _slow_links(view: JobView) -> list[Point]:
    """Return the number of slow links by the place that they share: a job has at most one."""
    findings = view.report.findings if view.report is not None else []
    found = {part: one.value for finding in findings for one in finding.evidence if (part := part_in(one)) is not None}
    return [((view.job, part), value) for part, value in found.items()]
