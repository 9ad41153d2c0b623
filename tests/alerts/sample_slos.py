"""Objectives of each kind of indicator, on metrics of ours."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tachoscope_alerts.spec.slo import AtMost, Gate, MoreThan, Ratio, Selector, Slices, Slo

REQUESTS = "tachoscope_requests_total"
SERVED = ("service", "model")


@dataclass(frozen=True, slots=True)
class Places:
    """Where runbooks and boards are."""

    runbook_base: str = "https://runbooks.example.com"
    dashboard_base: str = "https://boards.example.com/d"
    explorer_base: str = "https://explorer.example.com"


PLACES = Places()

AVAILABILITY = Slo(
    name="inference-availability",
    title="Availability",
    description="Of the requests that were not at fault themselves, the share that was answered.",
    area="inference",
    indicator=Ratio(
        total=Selector(REQUESTS, excluding={"outcome": ("client_error",)}),
        bad=Selector(REQUESTS, labels={"outcome": ("server_error", "shed", "timeout", "cut")}),
    ),
    by=SERVED,
    target=0.999,
    period_days=28,
    alert="InferenceAvailabilityBurn",
    pages=True,
    owner="inference-serving",
    target_source="judgement",
    least_bad_events=5,
    dashboard="inference",
    path="alerts/slos/inference-availability.yaml",
)
FIRST_TOKEN = replace(
    AVAILABILITY,
    name="inference-ttft-p99",
    title="Time to first token",
    description="Of the requests that got a first token, the share that got it within 2.5 s",
    indicator=AtMost(Selector("tachoscope_request_first_token_seconds"), 2.5),
    target=0.99,
    alert="InferenceTimeToFirstTokenBurn",
    path="alerts/slos/inference-ttft.yaml",
)
FIRST_TOKEN_P95 = replace(
    FIRST_TOKEN,
    name="inference-ttft-p95",
    indicator=AtMost(Selector("tachoscope_request_first_token_seconds"), 0.5),
    target=0.95,
    alert="InferenceTimeToFirstTokenP95Burn",
    pages=False,
)
GOODPUT = Slo(
    name="training-goodput",
    title="Goodput",
    description="Of the time that ranks are held, the share in which a step is done for the first time.",
    area="training",
    indicator=Ratio(
        total=Selector("tachoscope_time_seconds_total", excluding={"state": ("queued",)}),
        good=Selector("tachoscope_time_seconds_total", labels={"state": ("compute", "communication")}),
    ),
    by=(),
    target=0.95,
    period_days=28,
    alert="TrainingGoodputBurn",
    pages=True,
    owner="training-infrastructure",
    target_source="judgement",
    path="alerts/slos/training-goodput.yaml",
)
CHECKPOINT_AGE = replace(
    GOODPUT,
    name="training-checkpoint-age",
    title="Age of the newest verified checkpoint",
    description="",
    indicator=Slices(
        value=Selector("tachoscope_checkpoint_verified_timestamp_seconds"),
        by=("training_job",),
        comparison="lte",
        bound=3600,
        age=True,
        gate=Gate(Selector("tachoscope_job_active"), on=("training_job",), since_seconds=3600),
        missing="bad",
    ),
    target=0.99,
    alert="TrainingCheckpointAgeBurn",
    path="alerts/slos/training-checkpoint-age.yaml",
)
GPU_EFFICIENCY = replace(
    GOODPUT,
    name="gpu-efficiency",
    title="Efficiency of GPUs",
    indicator=Slices(
        value=Selector("tachoscope_gpu_active_ratio", labels={"unit": ("sm",)}),
        by=("gpu", "uuid", "mig"),
        comparison="gte",
        bound=0.8,
        reduce="min",
        gate=Gate(
            Selector("tachoscope_gpu_workload_info", excluding={"training_job": ("",)}),
            on=("gpu", "uuid", "mig"),
            since_seconds=600,
        ),
    ),
    target=0.9,
    alert="GpuEfficiencyBurn",
    pages=False,
    path="alerts/slos/gpu-efficiency.yaml",
)
RECOVERY = replace(
    GOODPUT,
    name="training-recovery",
    title="Recovery of jobs",
    indicator=AtMost(Selector("tachoscope_recovery_seconds"), 600),
    alert="TrainingRecoveryBurn",
    pages=False,
    least_bad_events=3,
    path="alerts/slos/training-recovery.yaml",
)
SM_ACTIVE = replace(
    GPU_EFFICIENCY,
    name="sm-active",
    indicator=MoreThan(Selector("tachoscope_job_sm_active_ratio"), 0.8),
    alert="SmActiveBurn",
    path="alerts/slos/sm-active.yaml",
)
SAMPLES = (AVAILABILITY, FIRST_TOKEN, FIRST_TOKEN_P95, GOODPUT, CHECKPOINT_AGE, GPU_EFFICIENCY, RECOVERY, SM_ACTIVE)
