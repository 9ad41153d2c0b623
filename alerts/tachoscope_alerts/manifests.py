"""The rules as PrometheusRule resources, which prometheus-operator loads (monitoring.coreos.com/v1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tachoscope_alerts.rules import Group

LABELS = {"app.kubernetes.io/name": "tachoscope", "app.kubernetes.io/component": "alerts"}
"""What a Prometheus selects rules by; a `ruleSelector` for others adds its own with kustomize."""


def prometheus_rule(name: str, groups: Sequence[Group]) -> dict[str, Any]:
    """Return the resource of one rule file; `name` is that of the file, of small letters, digits and hyphens."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": f"tachoscope-{name}", "labels": LABELS},
        "spec": {"groups": list(groups)},
    }
