from pathlib import Path

from tachoscope_core.metrics.catalogue import REQUEST_STATES, TRAINING_STATES
from tachoscope_core.report.taxonomy import BY_SLUG, Bottleneck
from trying import each

RUNBOOKS = Path(__file__).parents[3] / "runbooks"
SLUGS = [
    "input_fetch",
    "input_preprocess",
    "input_workers",
    "input_straggler",
    "h2d_copy",
    "compute_bound",
    "compute_inefficient",
    "launch_bound",
    "underfilled",
    "host_sync",
    "host_pause",
    "compute_straggler",
    "gpu_throttle",
    "cpu_contention",
    "recompilation",
    "data_imbalance",
    "pipeline_bubble",
    "stage_imbalance",
    "comm_exposed",
    "network_degraded",
    "slow_link",
    "memory_thrash",
    "host_memory",
    "out_of_memory",
    "checkpoint_stall",
    "lost_work",
    "hang",
    "async_staleness",
    "silent_corruption",
    "queue_saturation",
    "kv_pressure",
    "prefill_interference",
    "decode_bandwidth",
    "cold_start",
    "unknown",
]


def test_the_list_of_classes_is_closed() -> None:
    assert sorted(BY_SLUG) == sorted(SLUGS)


@each("entry", BY_SLUG.values())
def test_every_class_inflates_a_state_of_the_ledger(entry: Bottleneck) -> None:
    assert entry.state in TRAINING_STATES + REQUEST_STATES
    assert entry.title and entry.fix


@each("slug", SLUGS)
def test_every_class_has_a_runbook_to_follow(slug: str) -> None:
    text = (RUNBOOKS / f"{slug}.md").read_text()

    for heading in ("## Meaning", "## Impact", "## Diagnosis", "## Mitigation"):
        assert heading in text
    assert "TODO" not in text
    assert len(text.split()) > 100
