"""The conventions that hold for every metric; where a name breaks one, its parameter says which."""

import pytest

from tachoscope_core.metrics.catalogue import BY_NAME, METRICS, TRAINING_STATES
from tachoscope_core.metrics.metric import PROMETHEUS_LABELS, Metric

_HIGH_CARDINALITY = {"run", "run_id", "attempt", "pid", "step", "writer"}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_carry_prefix_unit_and_kind(metric: Metric) -> None:
    assert metric.name.startswith("tachoscope_")
    assert metric.name.endswith("_total") == (metric.type == "counter")
    if metric.unit:
        assert metric.name.removesuffix("_total").endswith(f"_{metric.unit}")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_labels_never_collide_with_prometheus_and_never_explode(metric: Metric) -> None:
    assert not set(metric.labels) & (PROMETHEUS_LABELS | _HIGH_CARDINALITY)


def test_a_rank_stays_within_its_budget_of_series() -> None:
    per_rank = sum(max(1, len(metric.states)) for metric in METRICS if "rank" in metric.labels)

    assert per_rank <= 60


def test_no_name_is_given_twice() -> None:
    assert len(BY_NAME) == len(METRICS)
    assert len(set(TRAINING_STATES)) == len(TRAINING_STATES)
