"""The series of a simulated fleet that is well: the label sets that a metric has there, and values that set off no alert."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from benchmarks.remote_write import Floats

from tachoscope_core.metrics import gpu as gpu_metrics
from tachoscope_core.metrics import scheduler as scheduler_metrics
from tachoscope_core.metrics import serving as serving_metrics
from tachoscope_core.metrics import training as training_metrics
from tachoscope_core.metrics import watch as watch_metrics
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.metrics.metric import NAMESPACE, Metric

Labels = dict[str, str]
_COLLECTORS = (
    *("cgroup", "clock", "cpu", "disk", "gpu", "gpu_health", "infiniband", "kernel_log", "memory", "network", "pods"),
    *("preemption", "pressure", "servers"),
)
VALUES: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "kind"): ("corrected", "uncorrected"),
    ("", "direction"): ("receive", "transmit"),
    ("", "collector"): _COLLECTORS,
    ("", "device"): ("nvme0n1", "nvme1n1", "mlx5_0", "mlx5_1"),
    ("", "outcome"): serving_metrics.OUTCOMES,
    ("", "met"): serving_metrics.MET,
    ("", "version"): ("1",),
    ("", "since"): ("volatile", "aggregate"),
    ("", "sensor"): ("gpu", "memory"),
    ("", "link"): ("pcie", "nvlink"),
    ("", "what"): ("generation", "width"),
    ("", "level"): ("own", "ancestor"),
    ("", "provider"): ("aws",),
    ("", "group"): ("dp", "tp"),
    ("", "collective"): ("AllReduce", "AllGather"),
    ("", "size_class"): ("medium", "large"),
    ("tachoscope_agent_errors_total", "part"): ("store", "journal", "state", "spool", "samples"),
    ("tachoscope_agent_http_refused_total", "reason"): ("unauthorised", "malformed", "too_slow", "too_many"),
    ("tachoscope_agent_otlp_exports_total", "outcome"): ("ok", "partial", "failed"),
    ("tachoscope_agent_rejected_total", "reason"): tuple("abcdefghijkl"),
    ("tachoscope_checkpoint_verifications_total", "result"): ("sound", "corrupt", "unreachable", "unverifiable"),
    ("tachoscope_collector_status", "status"): ("ok", "no_data", "not_supported", "failed"),
    ("tachoscope_gpu_active_ratio", "unit"): gpu_metrics.GPU_UNITS,
    ("tachoscope_gpu_clock_hertz", "kind"): ("current", "max"),
    ("tachoscope_gpu_clock_hertz", "clock"): ("sm", "memory"),
    ("tachoscope_gpu_health", "state"): gpu_metrics.GPU_HEALTH_STATES,
    ("tachoscope_gpu_memory_bytes", "kind"): ("total", "used", "free", "reserved"),
    ("tachoscope_gpu_nvlink_errors_total", "kind"): ("crc_flit", "crc_data", "replay", "recovery"),
    ("tachoscope_gpu_nvlinks", "state"): ("active", "inactive"),
    ("tachoscope_gpu_pcie_link", "kind"): ("current", "max"),
    ("tachoscope_gpu_power_watts", "kind"): ("usage", "limit"),
    ("tachoscope_gpu_row_remap", "state"): ("pending", "failed"),
    ("tachoscope_gpu_throttled", "reason"): gpu_metrics.THROTTLE_REASONS,
    ("tachoscope_gpu_throttled_seconds_total", "reason"): gpu_metrics.THROTTLE_TIMES,
    ("tachoscope_gpus", "kind"): ("expected", "seen"),
    ("tachoscope_host_cpu_seconds_total", "mode"): ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"),
    ("tachoscope_host_infiniband_errors_total", "kind"): ("symbol", "link_error_recovery", "link_downed", "port_rcv_errors"),
    ("tachoscope_host_infiniband_link_state", "state"): ("active", "down", "init", "armed"),
    ("tachoscope_integrity_events_total", "kind"): training_metrics.INTEGRITY_KINDS,
    ("tachoscope_node_health", "state"): gpu_metrics.GPU_HEALTH_STATES,
    ("tachoscope_request_tokens_total", "direction"): serving_metrics.DIRECTIONS,
}
"""Values of labels, of a metric or of all others. A label that is not here has one."""
RARE = frozenset({"tachoscope_gpu_xid_errors_total", "tachoscope_gpu_xid_last_seen_seconds", "tachoscope_shard_failures_total"})
"""What only one in a hundred has in a fleet that is well."""
ABSENT = frozenset({"tachoscope_gpu_health_reason_info", "tachoscope_collector_failing_seconds"})
OF_RANK_0 = frozenset({"tachoscope_nccl_ras_up", "tachoscope_nccl_communicators", "tachoscope_nccl_missing_ranks"})
"""What only the node tells that has rank 0 of a job: it asks for all ranks."""
OF_THE_WATCH = frozenset(
    {
        *("tachoscope_bottleneck_ratio", "tachoscope_compute_share_ratio", "tachoscope_job_same_failure"),
        *(metric.name for metric in (*watch_metrics.WATCH_METRICS, *scheduler_metrics.SCHEDULER_METRICS)),
    }
)
"""What one server tells, and not each node."""
RATES: dict[tuple[str, str], float] = {
    ("tachoscope_job_time_seconds_total", "compute"): 8 * 0.96,
    ("tachoscope_job_time_seconds_total", "communication"): 8 * 0.03,
    ("tachoscope_job_time_seconds_total", "data_wait"): 8 * 0.01,
    ("tachoscope_job_held_seconds_total", ""): 8.0,
    ("tachoscope_job_effective_seconds_total", ""): 8 * 0.99,
    ("tachoscope_time_seconds_total", "compute"): 0.96,
    ("tachoscope_time_seconds_total", "communication"): 0.03,
    ("tachoscope_time_seconds_total", "data_wait"): 0.01,
    ("tachoscope_requests_total", "ok"): 5.0,
    ("tachoscope_requests_total", "client_error"): 0.01,
    ("tachoscope_requests_joint_total", "yes"): 5.0,
    ("tachoscope_engine_time_seconds_total", "busy"): 0.8,
    ("tachoscope_engine_time_seconds_total", "idle"): 0.2,
    ("tachoscope_jobs_finished_total", "completed"): 0.001,
    ("tachoscope_steps_total", ""): 0.5,
    ("tachoscope_checkpoint_verifications_total", "sound"): 0.001,
    ("tachoscope_gpu_energy_joules_total", ""): 600.0,
    ("tachoscope_gpu_nvlink_bytes_total", ""): 5e10,
    ("tachoscope_gpu_pcie_bytes_total", ""): 2e9,
    ("tachoscope_host_cpu_seconds_total", "user"): 30.0,
    ("tachoscope_host_cpu_seconds_total", "system"): 2.0,
    ("tachoscope_host_cpu_seconds_total", "idle"): 64.0,
    ("tachoscope_host_disk_bytes_total", ""): 1e8,
    ("tachoscope_host_disk_operations_total", ""): 200.0,
    ("tachoscope_host_disk_operation_seconds_total", ""): 0.05,
    ("tachoscope_host_network_bytes_total", ""): 1e8,
    ("tachoscope_host_infiniband_bytes_total", ""): 1e10,
    ("tachoscope_nccl_bus_bytes_total", ""): 1e11,
    ("tachoscope_nccl_lines_total", "counted"): 800.0,
    ("tachoscope_agent_records_total", ""): 10.0,
    ("tachoscope_agent_shipped_bytes_total", ""): 4000.0,
    ("tachoscope_agent_shipped_objects_total", ""): 0.01,
    ("tachoscope_engine_iterations_total", ""): 40.0,
    ("tachoscope_engine_prompt_tokens_total", ""): 5000.0,
    ("tachoscope_request_tokens_total", ""): 2000.0,
    ("tachoscope_request_time_seconds_total", "prefill"): 1.0,
    ("tachoscope_request_time_seconds_total", "decode"): 20.0,
}
"""A second, by the first value of a label that says which; all other counters stand still, as errors do."""
HISTOGRAM_RATES = {
    "tachoscope_step_slowdown_ratio": 0.5,
    "tachoscope_step_seconds": 4.0,
    "tachoscope_step_data_wait_ratio": 4.0,
    "tachoscope_job_sm_active_ratio": 0.5,
    "tachoscope_recovery_seconds": 0.0,
    "tachoscope_nccl_collective_seconds": 100.0,
}
LEAST = {"tachoscope_job_sm_active_ratio": 0.9}
"""What all observations of a histogram are at least; of others half are in the first bucket, and the rest in the second."""
GAUGES: dict[str, float] = {
    "tachoscope_slowdown_ratio": 1.0,
    "tachoscope_data_wait_ratio": 0.02,
    "tachoscope_heartbeat_age_seconds": 3.0,
    "tachoscope_checkpoint_age_seconds": 600.0,
    "tachoscope_gpu_utilization_ratio": 0.98,
    "tachoscope_gpu_active_ratio": 0.9,
    "tachoscope_gpu_temperature_margin_celsius": 25.0,
    "tachoscope_gpu_pcie_link": 16.0,
    "tachoscope_kv_cache_usage_ratio": 0.5,
    "tachoscope_requests_running": 8.0,
    "tachoscope_agent_spool_free_bytes": 1e11,
    "tachoscope_host_memory_bytes": 1e12,
    "tachoscope_gpu_memory_bytes": 4e10,
    "tachoscope_gpus_held": 8.0,
    "tachoscope_gpu_clock_hertz": 1.7e9,
    "tachoscope_gpu_power_watts": 600.0,
    "tachoscope_gpu_temperature_celsius": 60.0,
    "tachoscope_gpu_memory_utilization_ratio": 0.4,
    "tachoscope_gpu_workload_memory_bytes": 4e10,
    "tachoscope_gpu_link_bytes_per_second": 5e10,
    "tachoscope_collector_duration_seconds": 0.004,
    "tachoscope_agent_tick_duration_seconds": 0.003,
    "tachoscope_compute_share_ratio": 0.96,
    "tachoscope_host_cpu_cores": 96.0,
    "tachoscope_host_infiniband_link_rate_bytes_per_second": 5e10,
}
ONES = ("_up", "_active", "_success", "_info", "_synchronised", "tachoscope_gpus")
"""How gauges end that are 1, or the same number throughout, where all is well."""
FIRST_IS_ONE = ("_health", "_status", "_link_state", "_job_ranks")
"""Gauges of which only the series with the first value of their last label is 1."""
OF_TIMES = ("_timestamp_seconds", "_start_time_seconds", "_last_seen_seconds")


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes with eight ranks and GPUs each, jobs on neighbouring nodes, and services of several models, each on a few nodes."""

    nodes: int = 1250
    gpus: int = 8
    jobs: int = 200
    services: int = 20
    models: int = 5
    replicas: int = 4

    def node_labels(self, node: int) -> Labels:
        return {"job": "tachoscope", "instance": f"node-{node:05d}:9465"}

    def job_labels(self, node: int) -> Labels:
        return {"training_job": f"pretrain-{node * self.jobs // self.nodes:04d}"}

    def first_node(self, node: int) -> int:
        """Return the node with rank 0 of the job on a node."""
        return -(-(node * self.jobs // self.nodes) * self.nodes // self.jobs)

    def rank_labels(self, node: int, local: int) -> Labels:
        return {**self.job_labels(node), "rank": str((node - self.first_node(node)) * self.gpus + local)}

    def gpu_labels(self, node: int, local: int) -> Labels:
        return {"gpu": str(local), "uuid": f"GPU-{node:08x}-{local:04x}-4000-8000-000000000000", "mig": ""}

    def entities(self, metric: Metric, nodes: range | None = None) -> Iterator[Labels]:
        """Yield the labels of each thing that has this metric, without those of its kinds; with `nodes`, of what is on these."""
        wanted = set(metric.labels)
        if metric.name in OF_THE_WATCH:
            jobs = range(self.jobs) if "training_job" in wanted else range(1)
            watch = {"job": "tachoscope-watch", "instance": "watch:9466"}
            yield from ({**watch, **({"training_job": f"pretrain-{job:04d}"} if "training_job" in wanted else {})} for job in jobs)
            return
        if "service" in wanted:
            yield from self._services(wanted, nodes)
            return
        each = range(self.gpus) if wanted & {"rank", "gpu"} else range(1)
        for node, local in itertools.product(range(self.nodes) if nodes is None else nodes, each):
            if metric.name in RARE and (node * 8 + local) % 100:
                continue
            if metric.name in OF_RANK_0 and node != self.first_node(node):
                continue
            known = {**self.rank_labels(node, local), **self.gpu_labels(node, local), "host": f"node-{node:05d}"}
            yield {**self.node_labels(node), **{label: value for label, value in known.items() if label in wanted}}

    def _services(self, wanted: set[str], nodes: range | None) -> Iterator[Labels]:
        models = range(self.models) if "model" in wanted else range(1)
        for service, model, replica in itertools.product(range(self.services), models, range(self.replicas)):
            node = (service * self.models + model) * self.replicas + replica
            if nodes is not None and node not in nodes:
                continue
            known = {"service": f"service-{service:02d}", "model": f"model-{model}"}
            yield {**self.node_labels(node), **{label: value for label, value in known.items() if label in wanted}}


@dataclass(frozen=True, slots=True)
class Planted:
    """A series: its labels, and what a second adds to it; of a gauge what it is, with `is_gauge`."""

    labels: Labels
    value: float
    is_gauge: bool


def names_in(rules: Iterable[str]) -> list[str]:
    """Return the names of raw series of ours that expressions read; those that the catalogue does not know end the program."""
    found = sorted({name for rule in rules for name in re.findall(r"(?<!:)\btachoscope_\w+", rule)})
    if unknown := [name for name in found if metric_of(name) is None]:
        raise SystemExit(f"rules read what the catalogue does not have: {', '.join(unknown)}")
    return [name for name in found if name not in ABSENT]


def metric_of(name: str) -> Metric | None:
    """Return the metric of a series' name."""
    plain = re.sub(r"_(bucket|count|sum)$", "", name)
    return BY_NAME.get(name) or BY_NAME.get(plain)


def series_of(name: str, fleet: Fleet, now: float, nodes: range | None = None) -> Iterator[Planted]:
    """Yield all series of a name in the fleet, or on these of its nodes."""
    metric = metric_of(name)
    assert metric is not None
    entities = list(fleet.entities(metric, nodes))
    if not entities:
        return
    free = [label for label in metric.labels if label not in entities[0] and label != NAMESPACE]  # a fleet outside of Kubernetes
    combinations = [dict(zip(free, values, strict=True)) for values in _combinations(metric, free)]
    bounds = [*map(str, metric.buckets), "+Inf"] if name.endswith("_bucket") else [""]
    for entity in entities:
        for number, chosen in enumerate(combinations):
            for bound in bounds:
                labels = {**entity, **chosen, "__name__": name, **({"le": bound} if bound else {})}
                yield Planted(labels, _value(metric, chosen, number, now, bound), metric.type == "gauge")


def _combinations(metric: Metric, free: list[str]) -> list[tuple[str, ...]]:
    if metric.name == "tachoscope_jobs_finished_total":
        return [(result, cause) for result, causes in training_metrics.ENDS.items() for cause in causes]
    states = {"state": metric.states} if metric.states else {}
    values = [VALUES.get((metric.name, label)) or states.get(label) or VALUES.get(("", label)) or (label,) for label in free]
    return list(itertools.product(*values))


def _value(metric: Metric, chosen: Labels, number: int, now: float, bound: str) -> float:
    name = metric.name
    if metric.type == "histogram":
        rate = HISTOGRAM_RATES.get(name, 5.0 if "service" in metric.labels else 0.001)
        if bound and name in LEAST:
            return rate if float(bound) >= LEAST[name] else 0.0
        return rate / 2 if bound == str(metric.buckets[0]) else rate
    if metric.type == "counter":
        return next((rate for (of, which), rate in RATES.items() if of == name and which in {"", *chosen.values()}), 0.0)
    if name in GAUGES:
        return GAUGES[name]
    if name.endswith(OF_TIMES):
        return now - 600.0
    if name.endswith(FIRST_IS_ONE):
        return float(number == 0)
    return float(name.endswith(ONES))


def values(series: list[Planted], times: Floats, chance: np.random.Generator) -> Floats:
    """Return the values of the series at the times, a row each; counters grow a little unevenly."""
    level = np.array([one.value for one in series])[:, None]
    is_gauge = np.array([one.is_gauge for one in series])[:, None]
    passed = np.diff(times, prepend=times[0] - 15.0) * chance.uniform(0.9999, 1.0001, (len(series), times.size))
    grown = np.cumsum(level * passed, axis=1)
    start = np.where(level > 0.0, 1000.0, 0.0)  # errors that never were
    return np.where(is_gauge, np.broadcast_to(level, grown.shape), start + grown)
