"""Families as the SDK's records."""

from __future__ import annotations

from typing import get_args, get_type_hints

from tachoscope_core.metric import Metric
from tachoscope_node.otlp_points import _UNITS


def test_every_unit_that_a_metric_may_have_can_be_pushed() -> None:
    assert set(_UNITS) == set(get_args(get_type_hints(Metric)["unit"]))
