"""The conventions that hold for every metric; where a name breaks one, its parameter says which."""

import pytest

from tachoscope_core.metrics.catalogue import BY_NAME, METRICS, TRAINING_STATES
from tachoscope_core.metrics.metric import PROMETHEUS_LABELS, Metric
from trying import each

_HIGH_CARDINALITY = {"run", "run_id", "attempt", "pid", "step", "writer"}


@each("metric", METRICS)
def test_names_carry_the_prefix_and_only_counters_end_in_total(metric: Metric) -> None:
    assert metric.name.startswith("tachoscope_")
    assert metric.name.endswith("_total") == (metric.type == "counter")
    assert not (metric.type == "counter" and metric.buckets)


@pytest.mark.parametrize(
    ("name", "buckets", "expected"),
    [
        ("tachoscope_x_seconds_total", (), ("counter", "seconds")),
        ("tachoscope_x_seconds", (0.1, 1.0), ("histogram", "seconds")),
        ("tachoscope_x_ratio", (), ("gauge", "ratio")),
        ("tachoscope_xs_total", (), ("counter", "")),
        ("tachoscope_x_info", (), ("gauge", "")),
    ],
)
def test_type_and_unit_follow_from_the_name(name: str, buckets: tuple[float, ...], expected: tuple[str, str]) -> None:
    metric = Metric(name, "For tests.", buckets=buckets)

    assert (metric.type, metric.unit) == expected


@each("metric", METRICS)
def test_labels_never_collide_with_prometheus_and_never_explode(metric: Metric) -> None:
    assert not set(metric.labels) & (PROMETHEUS_LABELS | _HIGH_CARDINALITY)


def test_a_rank_stays_within_its_budget_of_series() -> None:
    per_rank = sum(max(1, len(metric.states)) for metric in METRICS if "rank" in metric.labels)

    assert per_rank <= 60


def test_no_name_is_given_twice() -> None:
    assert len(BY_NAME) == len(METRICS)
    assert len(set(TRAINING_STATES)) == len(TRAINING_STATES)
