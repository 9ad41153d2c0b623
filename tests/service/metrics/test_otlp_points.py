"""Families as the SDK's records."""

from __future__ import annotations

from typing import get_args

from tachoscope_core.metrics.metric import Unit
from tachoscope_core.metrics.training import JOB_SM_ACTIVE, STEP_SECONDS
from tachoscope_service.metrics.family import Family, Histogram
from tachoscope_service.metrics.otlp.points import _UNITS, Points


def test_every_unit_that_a_metric_may_have_can_be_pushed() -> None:
    assert set(_UNITS) == set(get_args(Unit))


def test_what_the_agent_counts_in_its_memory_begins_with_it_and_what_it_saves_with_the_host() -> None:
    histogram = Histogram((1,) + (0,) * len(JOB_SM_ACTIVE.buckets), 0.05)
    of_step = Histogram((1,) + (0,) * len(STEP_SECONDS.buckets), 0.005)
    families = [Family(JOB_SM_ACTIVE, [(("llm",), histogram)]), Family(STEP_SECONDS, [(("llm",), of_step)])]
    data, _ = Points({}, start_time_seconds=500.0, boot_time_seconds=100.0).convert(families, 600 * 10**9)
    (metrics,) = [scope.metrics for resource in data.resource_metrics for scope in resource.scope_metrics]

    assert {metric.name: metric.data.data_points[0].start_time_unix_nano // 10**9 for metric in metrics} == {
        JOB_SM_ACTIVE.name: 500,
        STEP_SECONDS.name: 100,
    }
