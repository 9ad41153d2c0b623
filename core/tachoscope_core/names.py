"""The one catalogue of names: ledger states and metrics.

Exporters, rules, dashboards and tests import it, so that a typing mistake is an error and not an empty panel. Metrics are in
base units (seconds, bytes, ratios 0 to 1); counters end in `_total`; no label is one that Prometheus owns, and none holds
a run id, attempt, pid or step number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    "initialisation",
    "restore",
    "lost_work",
    "queued",
    "hung",
    "unexplained",
)
"""Where a second of a rank goes: exactly one of these. `communication` is exposed communication only."""

REQUEST_STATES = ("queued", "prefill", "decode", "preempted", "cold_start", "unexplained")
ENGINE_STATES = ("busy", "idle", "starved")
UNEXPLAINED = "unexplained"

PROMETHEUS_LABELS = frozenset({"job", "instance", "namespace", "pod", "container", "le", "quantile"})
"""Labels that a scrape owns: ours never collide with them."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of the catalogue; `states` lists the values of its `state` label, where it has one."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    unit: Literal["seconds", "bytes", "ratio", ""]
    help: str
    labels: tuple[str, ...] = ()
    states: tuple[str, ...] = ()


_RANK = ("training_job", "rank")
_JOB = ("training_job",)

METRICS: tuple[Metric, ...] = (
    Metric(
        "tachoscope_time_seconds_total",
        "counter",
        "seconds",
        "Time of a rank by ledger state; the states add up to the wall time.",
        (*_RANK, "state"),
        TRAINING_STATES,
    ),
    Metric("tachoscope_steps_total", "counter", "", "Optimizer steps finished by a rank.", _RANK),
    Metric("tachoscope_step_seconds", "histogram", "seconds", "Wall time of a step, over all ranks of a job.", _JOB),
    Metric(
        "tachoscope_slowdown_ratio",
        "gauge",
        "ratio",
        "Step time over that of the same job without its stragglers.",
        _JOB,
    ),
    Metric("tachoscope_data_wait_ratio", "gauge", "ratio", "Share of the step spent waiting for data.", _RANK),
    Metric("tachoscope_checkpoint_age_seconds", "gauge", "seconds", "Time since the last checkpoint was saved.", _JOB),
    Metric(
        "tachoscope_checkpoint_blocking_seconds",
        "histogram",
        "seconds",
        "Time that training stood still for a checkpoint.",
        _JOB,
    ),
    Metric("tachoscope_heartbeat_age_seconds", "gauge", "seconds", "Time since a rank last said that it is alive.", _RANK),
    Metric("tachoscope_goodput_ratio", "gauge", "ratio", "Productive share of the wall time of a job.", _JOB),
    Metric("tachoscope_bottleneck_ratio", "gauge", "ratio", "Share of the step lost to a bottleneck.", (*_JOB, "class")),
    Metric("tachoscope_records_dropped_total", "counter", "", "Records that a process could not write.", _RANK),
)

BY_NAME = {metric.name: metric for metric in METRICS}
