"""Metrics of a cluster's scheduler, as `tachoscope watch --scheduler` asks it. Jobs without accelerators are in none of them."""

from __future__ import annotations

from tachoscope_core.metrics.metric import Metric

PENDING_STATES = ("eligible", "not_eligible")
"""Whether a pending job waits for accelerators alone, or also for a dependency, its begin time or the release of a hold."""
ACCELERATOR_STATES = ("allocated", "idle", "drained", "down")
"""Where a node is drained or down: those of its accelerators that no job has."""
INTERRUPTION_STATES = ("preempted", "node_failed", "requeued")
ACTIVITIES = ("stepping", "idle", "unreported", "unknown")
"""Of a job that holds accelerators: it did a step lately, or began lately; it did none for half an hour; no agent reports it; the
reports of the agents cannot be read."""
IDLE_SECONDS = 1800.0

SCHEDULER_UP = Metric(
    "tachoscope_scheduler_up",
    "1: the scheduler answered when it was last asked; 0: it did not, and its other metrics are absent.",
    ("scheduler",),
)
PENDING_JOBS = Metric(
    "tachoscope_scheduler_pending_jobs", "Jobs that wait for accelerators.", ("partition", "state"), PENDING_STATES
)
PENDING_ACCELERATORS = Metric(
    "tachoscope_scheduler_pending_accelerators", "Accelerators that jobs wait for.", ("partition", "state"), PENDING_STATES
)
OLDEST_PENDING = Metric(
    "tachoscope_scheduler_oldest_pending_seconds",
    "How long the job has been eligible that has waited longest for accelerators; absent: none waits.",
    ("partition",),
)
GANG_WAIT = Metric(
    "tachoscope_scheduler_gang_wait_seconds",
    "From the time at which a job is eligible to its start, of jobs that started since the watch began.",
    ("partition",),
    buckets=(10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0, 259200.0),
)
INTERRUPTIONS = Metric(
    "tachoscope_scheduler_interruptions_total",
    "Allocations that ended by preemption, by the failure of a node or by a requeue, since the watch began.",
    ("partition", "state"),
    INTERRUPTION_STATES,
)
REQUEUE_SECONDS = Metric(
    "tachoscope_scheduler_requeue_seconds",
    "From the end of an allocation by preemption, the failure of a node or a requeue to the next start of the same job of the "
    "scheduler, or of tachoscope, since the watch began. A grace time between notice and end is not part of it.",
    ("partition",),
    buckets=GANG_WAIT.buckets,
)
ACCELERATORS = Metric("tachoscope_scheduler_accelerators", "Accelerators of the cluster.", ("state",), ACCELERATOR_STATES)
ACCELERATORS_HELD = Metric(
    "tachoscope_scheduler_accelerators_held",
    "Accelerators that jobs have, by what the records of these jobs say: stepping, idle (no step for half an hour), unreported (no "
    "agent reports the job), unknown (the agents' reports cannot be read).",
    ("account", "activity"),
)

SCHEDULER_METRICS = (
    SCHEDULER_UP,
    PENDING_JOBS,
    PENDING_ACCELERATORS,
    OLDEST_PENDING,
    GANG_WAIT,
    INTERRUPTIONS,
    REQUEUE_SECONDS,
    ACCELERATORS,
    ACCELERATORS_HELD,
)
