"""Alerts that fire, counted in one way on all boards: what Prometheus has once a pair of windows, or once a GPU, is one alert."""

from __future__ import annotations

from tachoscope_dashboards.boards.shared.identity import PLACE

EACH = f"alertname, severity, area, {PLACE}, slo, service, model, training_job, instance"
"""The labels by which people tell one alert from another."""
AREAS = ("infrastructure", "training", "inference")
OF_CLUSTER = 'cluster=~"$cluster|"'
"""The alerts of the chosen clusters, and those of all clusters together, which have no such label."""


def firing(*matchers: str, severity: str = "page|ticket", more: str = "") -> str:
    """Return the alerts that fire, one series each: without Watchdog, which always fires, and without the alerts of others.

    Args:
        matchers: of alerts, such as `OF_CLUSTER`. severity: a pattern. more: labels to keep that tell no alert from another.
    """
    chosen = ", ".join(('alertstate="firing"', f'severity=~"{severity}"', 'area!=""', *matchers))
    return f"max by ({EACH}{more and ', '}{more}) (ALERTS{{{chosen}}})"
