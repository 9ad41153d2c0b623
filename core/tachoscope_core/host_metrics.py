"""Metrics of the host that ranks run on."""

from __future__ import annotations

from tachoscope_core.metric import Metric

HOST_METRICS: tuple[Metric, ...] = ()
