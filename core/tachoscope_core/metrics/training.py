"""Metrics of training jobs."""

from __future__ import annotations

from tachoscope_core.metrics.metric import Metric

TRAINING_STATES = (
    "compute",
    "communication",
    "data_wait",
    "host_to_device",
    "host_wait",
    "straggler_wait",
    "pipeline_bubble",
    "checkpoint",
    "evaluation",
    "compile",
    "initialisation",
    "restore",
    "lost_work",
    "queued",
    "hung",
    "unexplained",
)
"""Where a second of a rank goes: exactly one of these. `communication` is exposed communication only."""

EFFECTIVE_STATES = ("compute", "communication", "host_to_device", "host_wait", "straggler_wait", "pipeline_bubble", "evaluation")
"""Those in which a step is done for the first time, or what was asked for besides: effective training time."""
RANK_STATES = ("working", "silent", "hung")
"""What a rank that has not left does, by its node's agent: `silent` wrote no record for a minute."""
INTEGRITY_KINDS = ("loss", "gradients", "parameters", "checksum")
"""What a check of the numbers may find: NaN or Inf in the first three, or replicas whose parameters differ."""
ENDS: dict[str, tuple[str, ...]] = {
    "completed": ("none",),
    "failed": ("infra", "user", "unknown"),
    "cancelled": ("infra", "user", "unknown"),
}
"""Causes by result of an attempt of a job."""

_RANK = ("training_job", "rank")
_JOB = ("training_job",)
_STEP_BUCKETS = (0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_SLOWDOWN_BUCKETS = (1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
_CHECKPOINT_BUCKETS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_DATA_WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75)
_ACTIVE_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_RECOVERY_BUCKETS = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)

TIME_SECONDS = Metric(
    "tachoscope_time_seconds_total",
    "Time of a rank by ledger state; the states add up to the wall time from its launch to its last record, "
    "or to the end of its launcher, once that has ended.",
    (*_RANK, "state"),
    TRAINING_STATES,
)
JOB_TIME_SECONDS = Metric(
    "tachoscope_job_time_seconds_total", "The same of all ranks of a job on the node together.", (*_JOB, "state"), TRAINING_STATES
)
JOB_HELD_SECONDS = Metric(
    "tachoscope_job_held_seconds_total",
    "Time in which ranks of a job on the node hold what they were given: that of all states but queued.",
    _JOB,
)
JOB_EFFECTIVE_SECONDS = Metric(
    "tachoscope_job_effective_seconds_total",
    f"Of that the time in which a step is done for the first time, or an evaluation: {', '.join(EFFECTIVE_STATES)}.",
    _JOB,
)
STEPS = Metric("tachoscope_steps_total", "Optimizer steps finished by a rank.", _RANK)
STEP_SECONDS = Metric(
    "tachoscope_step_seconds", "Wall time of a step, over all ranks of a job on the node.", _JOB, buckets=_STEP_BUCKETS
)
STEP_SLOWDOWN = Metric(
    "tachoscope_step_slowdown_ratio",
    "Time of a step over the median of the steps before it in the same attempt (those of two hours ago count half), from the 33rd "
    "on: each new step once a node, by its slowest rank, less what was spent on a checkpoint, an evaluation or compiling.",
    _JOB,
    buckets=_SLOWDOWN_BUCKETS,
)
SLOWDOWN = Metric(
    "tachoscope_slowdown_ratio",
    "Step time over that of the same job without its stragglers, from the ranks on the node; absent with fewer than two.",
    _JOB,
)
DATA_WAIT = Metric("tachoscope_data_wait_ratio", "Share of the recent steps that a rank spent waiting for data.", _RANK)
STEP_DATA_WAIT = Metric(
    "tachoscope_step_data_wait_ratio",
    "Share of a new step that a rank spent waiting for data: each step of each rank of a job on the node.",
    _JOB,
    buckets=_DATA_WAIT_BUCKETS,
)
JOB_SM_ACTIVE = Metric(
    "tachoscope_job_sm_active_ratio",
    "Activity of the multiprocessors of the GPUs that a job has on the node, at each look at them while the job does steps; absent "
    "where no GPU tells (by GPM from Hopper on, else by a dcgm-exporter).",
    _JOB,
    buckets=_ACTIVE_BUCKETS,
)
CHECKPOINT_AGE = Metric(
    "tachoscope_checkpoint_age_seconds", "Time since the job last saved a checkpoint on the node; absent before its first.", _JOB
)
CHECKPOINT_BLOCKING = Metric(
    "tachoscope_checkpoint_blocking_seconds", "Time that training stood still for a checkpoint.", _JOB, buckets=_CHECKPOINT_BUCKETS
)
CHECKPOINT_BACKGROUND = Metric(
    "tachoscope_checkpoint_background_seconds",
    "Time from the end of the blocking part of an asynchronous checkpoint until it was complete.",
    _JOB,
    buckets=_CHECKPOINT_BUCKETS,
)
HEARTBEAT_AGE = Metric("tachoscope_heartbeat_age_seconds", "Time since a rank last wrote any record.", _RANK)
JOB_RANKS = Metric(
    "tachoscope_job_ranks",
    "Ranks of a job on the node that have not left, by what they do: hung (no step for far longer than one takes, without excuse), "
    "silent (no record for a minute), working (all others).",
    (*_JOB, "state"),
    RANK_STATES,
)
WORKER_FAILURES = Metric(
    "tachoscope_worker_failures_total", "Processes of a job that failed, by the host they ran on.", (*_JOB, "host")
)
RESTARTS = Metric("tachoscope_restarts_total", "Attempts of a job on the node that followed another one.", _JOB)
RECOVERY_SECONDS = Metric(
    "tachoscope_recovery_seconds",
    "Time from a failure of a job on the node, or the last step before a hang that ended in one, to the first step that is new.",
    _JOB,
    buckets=_RECOVERY_BUCKETS,
)
JOB_ACTIVE = Metric(
    "tachoscope_job_active",
    "1 while `tachoscope run` or the node's agent watches the processes of a job, between attempts too; 0 after that.",
    _JOB,
)
JOBS_FINISHED = Metric(
    "tachoscope_jobs_finished_total",
    "Attempts of jobs that ended, once, on the node of rank 0: completed, failed, cancelled (SIGTERM, or interrupted). Cause: "
    "infra (the provider takes the node; a GPU of the job on it is lost or must be reset), user (interrupted; with all ranks on "
    "the node, the first failure was an error such as TypeError), none (completed), unknown (all else, such as out of memory).",
    ("result", "cause"),
)
JOB_MEMORY_FULL = Metric(
    "tachoscope_job_memory_full_seconds",
    "Time until the memory of a job on the node is full at the rate at which it grows: that of its control group, without page "
    "cache; without a limit that of the host. Absent unless it grows steadily and filled at least half of the room that it had; "
    "also where that is not known: no sample for 150 s, or a control group that cannot be read.",
    _JOB,
)
RECOMPILATIONS = Metric(
    "tachoscope_recompilations_total",
    "Compilations of code that torch.compile had compiled before for other inputs, of all ranks of a job on the node. Their time "
    "is part of the state compile, as is that of first compilations.",
    _JOB,
)
HANGS = Metric("tachoscope_hangs_total", "Hangs of a job that were noticed on the node: no rank there finished a step.", _JOB)
INTEGRITY_EVENTS = Metric(
    "tachoscope_integrity_events_total",
    "Checked steps with wrong numbers on the node, by kind: not finite are loss, gradients, parameters; checksum (replicas on it "
    "differ, which agreed before). Absent for a job that is not checked.",
    (*_JOB, "kind"),
)
PREEMPTION_NOTICE = Metric(
    "tachoscope_preemption_notice",
    "1 if the cloud provider has said that it will take the node back, 0 if it has not; absent while it cannot be asked.",
    ("provider",),
)
SHARD_FAILURES = Metric(
    "tachoscope_shard_failures_total",
    "Shards of the data set that could not be read; the first 20 shards by name, the others as `other`.",
    (*_JOB, "shard"),
)
SHARDS_QUARANTINED = Metric(
    "tachoscope_shards_quarantined",
    "Shards of the data set on the quarantine list of a job, as the node knows it; absent where nothing is known of its shards.",
    _JOB,
)
COMPUTE_SHARE = Metric(
    "tachoscope_compute_share_ratio", "Share of the time of a job's last steps in which its ranks compute.", _JOB
)
BOTTLENECK = Metric("tachoscope_bottleneck_ratio", "Share of the step lost to a bottleneck.", (*_JOB, "class"))
SLOW_LINKS = Metric(
    "tachoscope_slow_links",
    "Slow links of a job that all pass one host or switch, which no other link of the job passes; absent: no such place is known.",
    (*_JOB, "place"),
)
SAME_FAILURE = Metric(
    "tachoscope_job_same_failure",
    "1: the last attempt of a job failed at the same root as the one before, with no new step in between; 0: it failed otherwise.",
    _JOB,
)
RECORDS_DROPPED = Metric(
    "tachoscope_records_dropped_total", "Records that the processes of a job on the node could not write.", _JOB
)

TRAINING_METRICS = (
    TIME_SECONDS,
    JOB_TIME_SECONDS,
    JOB_HELD_SECONDS,
    JOB_EFFECTIVE_SECONDS,
    STEPS,
    STEP_SECONDS,
    STEP_SLOWDOWN,
    SLOWDOWN,
    DATA_WAIT,
    STEP_DATA_WAIT,
    JOB_SM_ACTIVE,
    CHECKPOINT_AGE,
    CHECKPOINT_BLOCKING,
    CHECKPOINT_BACKGROUND,
    HEARTBEAT_AGE,
    JOB_RANKS,
    WORKER_FAILURES,
    RESTARTS,
    RECOVERY_SECONDS,
    JOB_ACTIVE,
    JOBS_FINISHED,
    JOB_MEMORY_FULL,
    RECOMPILATIONS,
    HANGS,
    INTEGRITY_EVENTS,
    PREEMPTION_NOTICE,
    SHARD_FAILURES,
    SHARDS_QUARANTINED,
    COMPUTE_SHARE,
    BOTTLENECK,
    SLOW_LINKS,
    SAME_FAILURE,
    RECORDS_DROPPED,
)
