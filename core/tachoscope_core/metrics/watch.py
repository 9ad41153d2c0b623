"""Metrics of `tachoscope watch` itself; what it says about jobs is among those of training."""

from __future__ import annotations

from tachoscope_core.metrics.metric import Metric

JOB_STATES = ("judged", "unjudged", "failed", "left_out")
"""What became of a live job: a report; none, since it has too few steps or serves requests; an error; more than are shown."""

WATCH_JOBS = Metric("tachoscope_watch_jobs", "Live jobs in the last cycle of the watch.", ("state",), JOB_STATES)
WATCH_CYCLE_SECONDS = Metric("tachoscope_watch_cycle_seconds", "How long the last cycle of the watch took.")
WATCH_LAST_CYCLE = Metric("tachoscope_watch_last_cycle_timestamp_seconds", "When the last cycle of the watch ended, Unix time.")
WATCH_SHARE = Metric(
    "tachoscope_watch_share_ratio",
    "Part of the jobs that this watch has: 1 over the number of watches that share them; 0: it has none now.",
)

WATCH_METRICS = (WATCH_JOBS, WATCH_CYCLE_SECONDS, WATCH_LAST_CYCLE, WATCH_SHARE)
