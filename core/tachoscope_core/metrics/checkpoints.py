"""Metrics of checkpoints that were read back."""

from __future__ import annotations

from tachoscope_core.metrics.metric import Metric

VERIFIED_TIMESTAMP = Metric(
    "tachoscope_checkpoint_verified_timestamp_seconds",
    "Unix time at which the newest checkpoint was saved that was read back and found sound; absent without one. A job on several "
    "nodes has one for each, for what the node's ranks wrote: the least counts.",
    ("training_job",),
)
VERIFICATIONS = Metric(
    "tachoscope_checkpoint_verifications_total",
    "Checkpoints that were read back on the node: sound, corrupt, unreachable (cannot be read from there), unverifiable "
    "(not all of its ranks said what they wrote).",
    ("training_job", "result"),
)

CHECKPOINT_METRICS = (VERIFIED_TIMESTAMP, VERIFICATIONS)
