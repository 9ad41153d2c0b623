"""Families as the SDK's records."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from tachoscope_core.metric import Metric
from tachoscope_core.names import METRICS
from tachoscope_node.otlp_points import _UNITS


def test_every_unit_that_a_metric_may_have_has_a_code() -> None:
    assert set(_UNITS) == set(get_args(get_type_hints(Metric)["unit"]))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_of_the_catalogue_can_be_pushed(metric: Metric) -> None:
    assert metric.unit in _UNITS
