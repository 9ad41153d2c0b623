"""A small fleet in which everything is broken at once, as OpenMetrics: each query of a runbook finds on it what it looks for.

Two nodes, a training `resnet` with a rank on each, a service `chat`. Values are straight lines: gauges are level, counters rise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.metrics.nccl import COMMUNICATOR_STATES, MISSING_CONDITIONS
from tachoscope_core.metrics.scheduler import ACCELERATOR_STATES, ACTIVITIES, INTERRUPTION_STATES, PENDING_STATES
from tachoscope_core.metrics.training import RANK_STATES, TRAINING_STATES
from tachoscope_core.metrics.watch import JOB_STATES, NODE_STATES

END = 1_790_000_040.0
"""Unix time of the last sample: the moment at which somebody asks."""
SPAN_SECONDS, STEP_SECONDS = 7800.0, 60.0
NODES = ("node-1:9465", "node-2:9465")

LABELS = {
    "training_job": "resnet",
    "instance": NODES[0],
    "gpu": "0",
    "service": "chat",
    "model": "llama",
    "collector": "nvml",
    "job": "tachoscope",
    "class": "compute_straggler",
    "cluster": "a",
    "slo": "inference-ttft-p99",
    "workload_namespace": "ml",
    "account": "vision",
}
"""What the placeholders of the queries stand for: labels that the alerts carry."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series: `value` at the end, and what it grows by in a second."""

    name: str
    labels: Mapping[str, str]
    value: float
    slope: float = 0.0


def openmetrics() -> str:
    """Return all samples of the fleet."""
    times = [END - SPAN_SECONDS + count * STEP_SECONDS for count in range(round(SPAN_SECONDS / STEP_SECONDS) + 1)]
    lines = []
    # OpenMetrics wants the samples of a metric together.
    for one in sorted(all_series(), key=lambda one: one.name):
        labels = ",".join(f'{key}="{value}"' for key, value in {**one.labels, **_place(one)}.items())
        lines += [f"{one.name}{{{labels}}} {one.value - one.slope * (END - time):.6f} {time:.0f}" for time in times]
    return "\n".join([*lines, "# EOF", ""])


def _place(one: Series) -> dict[str, str]:
    """Return the cluster of all series, and of jobs and services the namespace."""
    names = ("cluster", "workload_namespace") if {"training_job", "service"} & one.labels.keys() else ("cluster",)
    return {name: LABELS[name] for name in names}


def all_series() -> list[Series]:
    """Return the series of the fleet."""
    return [
        *_objectives(),
        *_training(),
        *_checkpoints_and_data(),
        *_hosts(),
        *_gpus(),
        *_inference(),
        *_agents(),
        *_watch(),
        *_scheduler(),
        *_prometheus(),
    ]


def _gauge(name: str, value: float, nodes: tuple[str, ...] = NODES, **labels: str) -> Iterator[Series]:
    for node in nodes:
        yield Series(name, {"instance": node, "job": "tachoscope", **labels}, value)


def _counter(name: str, per_second: float, nodes: tuple[str, ...] = NODES, **labels: str) -> Iterator[Series]:
    for node in nodes:
        yield Series(name, {"instance": node, "job": "tachoscope", **labels}, 10 * per_second * SPAN_SECONDS, per_second)


def _histogram(name: str, per_second: float, mean: float, nodes: tuple[str, ...] = NODES, **labels: str) -> Iterator[Series]:
    """Return a histogram: nine of ten events are spread evenly over the buckets, the tenth lies above the highest boundary."""
    bounds = BY_NAME[name].buckets
    for place, bound in enumerate(bounds):
        share = 0.9 * (place + 1) / len(bounds)
        yield from _counter(f"{name}_bucket", per_second * share, nodes, **labels, le=str(bound))
    yield from _counter(f"{name}_bucket", per_second, nodes, **labels, le="+Inf")
    yield from _counter(f"{name}_count", per_second, nodes, **labels)
    yield from _counter(f"{name}_sum", per_second * mean, nodes, **labels)


def _objectives() -> Iterator[Series]:
    training = ("goodput", "step-regularity", "checkpoint-age", "recovery", "job-success", "input-wait")
    inference = ("availability", "uptime", "ttft-p99", "ttft-p95", "inter-token", "admission", "joint-attainment")
    names = [(f"training-{name}", {}) for name in training] + [("gpu-efficiency", {}), ("gang-wait", {})]
    served = {"service": LABELS["service"], "model": LABELS["model"]}
    for name, labels in [*names, *((f"inference-{name}", served) for name in inference)]:
        for window in ("5m", "30m", "1h", "2h", "6h", "1d", "3d"):
            yield Series("slo:error:ratio", {"slo": name, "window": window, **labels}, 0.5)
        yield Series("slo:total_events:base", {"slo": name, **labels}, 16.0)
        yield Series("slo:total_events:sum30m", {"slo": name, **labels}, 960.0)
        yield Series("slo:unmeasured_events:base", {"slo": name, **labels}, 2.0)
        yield Series("slo:error_budget:remaining_ratio", {"slo": name, **labels}, 0.3)


def _training() -> Iterator[Series]:
    job = {"training_job": LABELS["training_job"]}
    for rank, node in enumerate(NODES):
        of = {**job, "rank": str(rank)}
        for place, state in enumerate(TRAINING_STATES):
            yield from _counter("tachoscope_time_seconds_total", 0.03 + 0.005 * place, (node,), **of, state=state)
        yield from _counter("tachoscope_steps_total", 0.5 + rank, (node,), **of)
        yield from _gauge("tachoscope_heartbeat_age_seconds", 5.0, (node,), **of)
        yield from _gauge("tachoscope_data_wait_ratio", 0.4, (node,), **of)
        yield from _counter("tachoscope_cgroup_throttled_seconds_total", 0.2, (node,), **of, level="own")
        yield from _counter("tachoscope_worker_failures_total", 0.002, (node,), **job, host=node.partition(":")[0])
    yield from _counter("tachoscope_records_dropped_total", 0.1, **job)
    yield from _histogram("tachoscope_step_seconds", 1.0, 0.6, **job)
    yield from _histogram("tachoscope_step_slowdown_ratio", 1.0, 1.4, **job)
    yield from _histogram("tachoscope_step_data_wait_ratio", 1.0, 0.3, **job)
    yield from _histogram("tachoscope_job_sm_active_ratio", 0.5, 0.5, **job)
    yield from _histogram("tachoscope_recovery_seconds", 0.002, 900.0, **job)
    yield from _gauge("tachoscope_slowdown_ratio", 1.4, **job)
    for state, ranks in zip(RANK_STATES, (6.0, 1.0, 1.0), strict=True):
        yield from _gauge("tachoscope_job_ranks", ranks, **job, state=state)
    yield from _gauge("tachoscope_job_active", 1.0, **job)
    yield from _gauge("tachoscope_job_active", 1.0, NODES[:1], training_job="without-checkpoint")
    yield from _counter("tachoscope_restarts_total", 0.002, **job)
    yield from _counter("tachoscope_hangs_total", 0.002, **job)
    yield from _counter("tachoscope_recompilations_total", 0.01, **job)
    yield from _counter("tachoscope_integrity_events_total", 0.001, **job, kind="checksum")
    yield from _gauge("tachoscope_preemption_notice", 1.0, NODES[:1], provider="gcp")
    for result, cause in (("completed", "none"), ("failed", "infra"), ("failed", "user")):
        yield from _counter("tachoscope_jobs_finished_total", 0.003, result=result, cause=cause)


def _checkpoints_and_data() -> Iterator[Series]:
    job = {"training_job": LABELS["training_job"]}
    yield from _gauge("tachoscope_checkpoint_age_seconds", 9000.0, **job)
    yield from _gauge("tachoscope_checkpoint_verified_timestamp_seconds", END - 9000.0, **job)
    yield from _histogram("tachoscope_checkpoint_blocking_seconds", 0.01, 90.0, **job)
    yield from _histogram("tachoscope_checkpoint_background_seconds", 0.01, 200.0, **job)
    for result in ("sound", "corrupt", "unreachable", "unverifiable"):
        yield from _counter("tachoscope_checkpoint_verifications_total", 0.002, **job, result=result)
    yield from _counter("tachoscope_shard_failures_total", 0.003, **job, shard="/data/part-003.tar")
    yield from _gauge("tachoscope_shards_quarantined", 1.0, **job)
    yield from _gauge("tachoscope_job_memory_full_seconds", 2400.0, **job)


def _hosts() -> Iterator[Series]:
    for mode, share in (("idle", 1.0), ("user", 6.0), ("iowait", 1.0)):
        yield from _counter("tachoscope_host_cpu_seconds_total", share, mode=mode)
    yield from _counter("tachoscope_host_pressure_seconds_total", 0.3, resource="io", kind="some")
    yield from _counter("tachoscope_host_oom_kills_total", 0.001)
    for direction in ("read", "write"):
        yield from _counter("tachoscope_host_disk_operations_total", 100.0, device="nvme0n1", direction=direction)
        yield from _counter("tachoscope_host_disk_operation_seconds_total", 20.0, device="nvme0n1", direction=direction)
    yield from _counter("tachoscope_host_network_bytes_total", 1e6, device="eth0", direction="transmit")
    yield from _counter("tachoscope_host_network_errors_total", 0.1, device="eth0", direction="receive")
    yield from _counter("tachoscope_host_tcp_sent_segments_total", 1000.0)
    yield from _counter("tachoscope_host_tcp_retransmitted_segments_total", 10.0)
    yield from _counter("tachoscope_host_infiniband_errors_total", 0.1, device="mlx5_0", port="1", kind="symbol_error")
    yield from _gauge("tachoscope_host_infiniband_link_state", 0.0, device="mlx5_0", port="1", state="active")


def _gpus() -> Iterator[Series]:
    yield from _gauge("tachoscope_gpus", 2.0, kind="expected")
    yield from _gauge("tachoscope_gpus", 1.0, kind="seen")
    for gpu, node in (("0", NODES[0]), ("1", NODES[0]), ("0", NODES[1])):
        uuid = f"GPU-{node[:6]}-{gpu}"
        yield from _gpu(node, gpu=gpu, uuid=uuid)
        short = {"gpu": gpu, "uuid": uuid}
        yield from _counter("tachoscope_gpu_xid_errors_total", 0.001, (node,), **short, xid="74")
        yield from _gauge("tachoscope_gpu_xid_last_seen_seconds", END - 60, (node,), **short, xid="74")
        for reason, action in (("lost", "reboot_node"), ("thermal", "inspect_hardware"), ("row_remap_pending", "reset_gpu")):
            yield from _gauge("tachoscope_gpu_health_reason_info", 1.0, (node,), **short, reason=reason, action=action)


def _gpu(node: str, gpu: str, uuid: str) -> Iterator[Series]:
    of, here = {"gpu": gpu, "uuid": uuid, "mig": ""}, (node,)
    yield from _gauge("tachoscope_gpu_up", 0.0, here, **of)
    more = {"model": "H100", "pci_bus_id": f"0000:0{gpu}", "driver_version": "570.86", "mig_profile": ""}
    yield from _gauge("tachoscope_gpu_info", 1.0, here, **of, **more)
    rank = str(NODES.index(node))
    pod = {"workload_namespace": LABELS["workload_namespace"], "workload_pod": f"resnet-{rank}", "workload_container": "train"}
    yield from _gauge("tachoscope_gpu_workload_info", 1.0, here, **of, **pod, training_job="resnet", rank=rank)
    for unit, share in (("sm", 0.5), ("tensor", 0.3), ("dram", 0.4)):
        yield from _gauge("tachoscope_gpu_active_ratio", share, here, **of, unit=unit)
    yield from _gauge("tachoscope_gpu_utilization_ratio", 0.9, here, **of)
    yield from _gauge("tachoscope_gpu_recovery_action", 2.0, here, **of)
    for kind, clock in (("current", 1.0e9), ("max", 1.98e9)):
        yield from _gauge("tachoscope_gpu_clock_hertz", clock, here, **of, clock="sm", kind=kind)
    yield from _gauge("tachoscope_gpu_temperature_celsius", 92.0, here, **of, sensor="gpu")
    for kind, watts in (("usage", 690.0), ("limit", 700.0)):
        yield from _gauge("tachoscope_gpu_power_watts", watts, here, **of, kind=kind)
    yield from _counter("tachoscope_gpu_throttled_seconds_total", 0.5, here, **of, reason="hardware_thermal")
    for since in ("volatile", "aggregate"):
        yield from _counter("tachoscope_gpu_ecc_errors_total", 0.001, here, **of, kind="uncorrected", since=since)
    yield from _gauge("tachoscope_gpu_row_remap", 1.0, here, **of, state="pending")
    yield from _gauge("tachoscope_gpu_row_remap", 0.0, here, **of, state="failed")
    yield from _counter("tachoscope_gpu_remapped_rows_total", 0.001, here, **of, kind="uncorrected")
    yield from _counter("tachoscope_gpu_nvlink_errors_total", 0.1, here, **of, kind="replay")
    yield from _counter("tachoscope_gpu_nvlink_bytes_total", 1e9, here, **of, direction="transmit")
    yield from _gauge("tachoscope_gpu_nvlinks", 1.0, here, **of, state="inactive")
    yield from _counter("tachoscope_gpu_pcie_replays_total", 0.5, here, **of)
    yield from _counter("tachoscope_gpu_pcie_bytes_total", 1e8, here, **of, direction="receive")
    for kind, lanes in (("current", 8.0), ("max", 16.0)):
        yield from _gauge("tachoscope_gpu_pcie_link", lanes, here, **of, what="width", kind=kind)


def _inference() -> Iterator[Series]:
    engine = {"service": LABELS["service"], "model": LABELS["model"]}
    request = {**engine, "version": "v2"}
    for outcome in ("ok", "client_error", "server_error", "shed", "timeout", "cut"):
        yield from _counter("tachoscope_requests_total", 1.0, **request, outcome=outcome)
    for met in ("yes", "no"):
        yield from _counter("tachoscope_requests_joint_total", 1.0, **request, met=met)
    yield from _histogram("tachoscope_request_first_token_seconds", 5.0, 3.0, **request)
    yield from _histogram("tachoscope_request_inter_token_seconds", 100.0, 0.2, **request)
    yield from _histogram("tachoscope_request_queue_seconds", 5.0, 2.0, **request)
    for state in ("queued", "prefill", "decode", "preempted", "cold_start", "unexplained"):
        yield from _counter("tachoscope_request_time_seconds_total", 2.0, **request, state=state)
    for direction in ("in", "out"):
        yield from _counter("tachoscope_request_tokens_total", 1000.0, **request, direction=direction)
    yield from _gauge("tachoscope_requests_running", 20.0, NODES[:1], **engine)
    yield from _gauge("tachoscope_requests_running", 0.0, NODES[1:], **engine)
    for node in NODES:
        yield Series("tachoscope_requests_waiting", {"instance": node, "job": "tachoscope", **engine}, 80.0, 0.01)
    yield from _counter("tachoscope_request_preemptions_total", 0.5, **engine)
    yield from _gauge("tachoscope_kv_cache_usage_ratio", 0.97, **engine)
    yield from _counter("tachoscope_engine_iterations_total", 50.0, **engine)
    yield from _counter("tachoscope_engine_prompt_tokens_total", 900.0, **engine)
    yield from _gauge("tachoscope_server_up", 0.0, NODES[:1], service=LABELS["service"])
    yield from _gauge("tachoscope_server_up", 1.0, NODES[1:], service=LABELS["service"])
    yield from _gauge("tachoscope_server_start_time_seconds", END - 4000, service=LABELS["service"])


def _agents() -> Iterator[Series]:
    yield from _gauge("up", 0.0, NODES[:1])
    yield from _gauge("up", 1.0, NODES[1:])
    yield from _gauge("tachoscope_agent_info", 1.0, version="0.1.0")
    yield from _gauge("tachoscope_agent_lag_seconds", 4000.0)
    yield from _gauge("tachoscope_agent_backlog_bytes", 1e8)
    yield from _gauge("tachoscope_agent_spool_free_bytes", 1e9)
    yield from _gauge("tachoscope_agent_unreadable_directories", 2.0)
    yield from _gauge("tachoscope_agent_segments", 40.0)
    yield from _gauge("tachoscope_agent_config_reload_success", 0.0)
    yield from _counter("tachoscope_agent_errors_total", 0.1, part="store")
    yield from _counter("tachoscope_agent_rejected_total", 0.1, reason="over_limit")
    yield from _counter("tachoscope_agent_records_total", 10.0)
    yield from _counter("tachoscope_agent_shipped_bytes_total", 1e4)
    yield from _counter("tachoscope_agent_http_refused_total", 0.1, reason="unauthorised")
    yield from _gauge("tachoscope_collector_success", 0.0, collector=LABELS["collector"])
    yield from _gauge("tachoscope_collector_failing_seconds", 900.0, collector=LABELS["collector"])
    yield from _gauge("tachoscope_collector_status", 1.0, collector=LABELS["collector"], status="failed")
    yield from _gauge("tachoscope_collector_duration_seconds", 3.0, collector=LABELS["collector"])


def _watch() -> Iterator[Series]:
    here, job = NODES[:1], {"training_job": LABELS["training_job"]}
    for found, share in (("compute_straggler", 0.3), ("input_fetch", 0.2), ("hang", 1.0)):
        yield from _gauge("tachoscope_bottleneck_ratio", share, here, **job, **{"class": found})
    yield from _gauge("tachoscope_job_same_failure", 1.0, here, **job)
    yield from _gauge("tachoscope_bottleneck_ratio", 0.3, here, training_job="another", **{"class": LABELS["class"]})
    for state in JOB_STATES:
        yield from _gauge("tachoscope_watch_jobs", 2.0, here, state=state)
    yield from _gauge("tachoscope_watch_share_ratio", 1.0, here)
    yield from _gauge("tachoscope_watch_nodes_held", 3.0, here)
    yield from _gauge("tachoscope_watch_nodes_breaker_open", 1.0, here)
    for state in NODE_STATES:
        yield from _gauge("tachoscope_watch_nodes", 2.0, here, state=state)
    yield from _gauge("tachoscope_watch_cycle_seconds", 70.0, here)
    yield from _gauge("tachoscope_watch_last_cycle_timestamp_seconds", END - 900, here)
    for state in COMMUNICATOR_STATES:
        yield from _gauge("tachoscope_nccl_communicators", 1.0, here, state=state)
    for condition in MISSING_CONDITIONS:
        yield from _gauge("tachoscope_nccl_missing_ranks", 1.0, here, condition=condition)
    yield from _gauge("tachoscope_nccl_ras_up", 0.0, here)


def _scheduler() -> Iterator[Series]:
    here = NODES[:1]
    yield from _histogram("tachoscope_scheduler_gang_wait_seconds", 0.01, 900.0, here, partition="train")
    yield from _gauge("tachoscope_scheduler_up", 1.0, here, scheduler="slurm")
    for state in ACCELERATOR_STATES:
        yield from _gauge("tachoscope_scheduler_accelerators", 8.0, here, state=state)
    for activity in ACTIVITIES:
        yield from _gauge("tachoscope_scheduler_accelerators_held", 8.0, here, account=LABELS["account"], activity=activity)
    yield from _gauge("tachoscope_scheduler_oldest_pending_seconds", 7200.0, here, partition="train")
    for state in PENDING_STATES:
        yield from _gauge("tachoscope_scheduler_pending_jobs", 3.0, here, partition="train", state=state)
        yield from _gauge("tachoscope_scheduler_pending_accelerators", 24.0, here, partition="train", state=state)
    for state in INTERRUPTION_STATES:
        yield from _counter("tachoscope_scheduler_interruptions_total", 0.01, here, partition="train", state=state)


def _prometheus() -> Iterator[Series]:
    here = {"instance": "prometheus:9090", "job": "prometheus"}
    gauges = {
        "prometheus_notifications_alertmanagers_discovered": 1.0,
        "prometheus_tsdb_lowest_timestamp_seconds": END - 15 * 86_400,
        "prometheus_tsdb_retention_limit_bytes": 1e10,
        "prometheus_tsdb_head_series": 1e5,
    }
    for name, value in gauges.items():
        yield Series(name, here, value)
    group = {**here, "rule_group": "rules.yml;training-goodput"}
    yield Series("prometheus_rule_group_last_duration_seconds", group, 2.0)
    for name in ("prometheus_rule_evaluation_failures_total", "prometheus_rule_group_iterations_missed_total"):
        yield Series(name, group, 100.0, 0.01)
    yield Series(
        "prometheus_notifications_errors_total", {**here, "alertmanager": "http://alertmanager:9093/api/v2/alerts"}, 100.0, 0.01
    )
    yield Series("prometheus_tsdb_size_retentions_total", here, 10.0, 0.001)
    yield Series("ALERTS", {"alertname": "Watchdog", "alertstate": "firing", "severity": "none"}, 1.0)
