"""Metrics of NCCL's own telemetry: what its Inspector wrote of each operation, and what its RAS says of its communicators."""

from __future__ import annotations

from tachoscope_core.metrics.metric import Metric

SECONDS_BUCKETS = (0.0001, 0.001, 0.01, 0.1, 1.0)
"""Decades: latency, bandwidth of small and large messages, a straggler, a stall."""
LINE_OUTCOMES = (
    "counted",
    "malformed",  # no line of the Inspector
    "oversized",  # longer than one can be
    "implausible",  # numbers that cannot be
    "cut",  # the last line of a file, which its process did not end
)
COMMUNICATOR_STATES = ("running", "disagreeing", "hung", "incomplete", "error", "starting", "ending")
"""A communicator is in one of them. `disagreeing`: its ranks have launched different numbers of collectives, as they do while they
run; `hung`: these numbers did not change either. `incomplete`: ranks are missing."""
MISSING_CONDITIONS = ("unresponsive", "dead", "not_a_member")

_OPERATION = ("training_job", "group", "collective", "size_class")

COLLECTIVE_SECONDS = Metric(
    "tachoscope_nccl_collective_seconds",
    "Time in NCCL operations of the node's ranks, waiting for later ranks included, by process group, kind and size of message.",
    _OPERATION,
    buckets=SECONDS_BUCKETS,
)
BUS_BYTES = Metric(
    "tachoscope_nccl_bus_bytes_total",
    "Bytes that NCCL operations carried over the bus, by nccl-tests' factors; over the sum of their seconds: bus bandwidth.",
    _OPERATION,
)
BANDWIDTH_DIFFERS = Metric(
    "tachoscope_nccl_bandwidth_differs_total",
    "Operations of which the Inspector gave a bus bandwidth that is not 0 and not that of nccl-tests' factors.",
    ("collective",),
)
LINES = Metric(
    "tachoscope_nccl_lines_total",
    "Lines of the NCCL Inspector by outcome: counted, malformed, oversized, implausible, cut.",
    ("outcome",),
)
SKIPPED_BYTES = Metric(
    "tachoscope_nccl_skipped_bytes_total",
    "Output of the NCCL Inspector that was not read: written faster than the agent may read, or in lines that are too long.",
)
RELEASED_BYTES = Metric(
    "tachoscope_nccl_released_bytes_total", "What was read of the NCCL Inspector's files and given back to their file system."
)
INSPECTOR_FILES = Metric("tachoscope_nccl_inspector_files", "Files of the NCCL Inspector that are followed.")
DETAILS = Metric(
    "tachoscope_nccl_records_total",
    "Sampled operations by outcome: written as records of their job, or dropped, there being too many a second.",
    ("outcome",),
)
RAS_UP = Metric("tachoscope_nccl_ras_up", "1 if NCCL's RAS answered the last request, 0 if not; absent while no job has one.")
COMMUNICATORS = Metric(
    "tachoscope_nccl_communicators",
    "Communicators of the jobs whose RAS this node asks, by state: running, disagreeing (on how many collectives were launched), "
    "hung, incomplete, error, starting, ending.",
    ("state",),
    COMMUNICATOR_STATES,
)
MISSING_RANKS = Metric(
    "tachoscope_nccl_missing_ranks",
    "Ranks that communicators lack by condition: unresponsive, dead (by RAS given up), not_a_member.",
    ("condition",),
)

NCCL_METRICS = (
    COLLECTIVE_SECONDS,
    BUS_BYTES,
    BANDWIDTH_DIFFERS,
    LINES,
    SKIPPED_BYTES,
    RELEASED_BYTES,
    INSPECTOR_FILES,
    DETAILS,
    RAS_UP,
    COMMUNICATORS,
    MISSING_RANKS,
)
