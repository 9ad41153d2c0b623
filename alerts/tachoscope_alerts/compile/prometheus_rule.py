"""The rules as PrometheusRule resources, which prometheus-operator loads (monitoring.coreos.com/v1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tachoscope_alerts.compile.rules import Group

LABELS = {"app.kubernetes.io/name": "tachoscope", "app.kubernetes.io/component": "alerts"}
"""Labels of each resource."""


def prometheus_rule(name: str, groups: Sequence[Group], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the resource of one rule file.

    Args:
        name: of the file, of small letters, digits and hyphens. labels: more of them, which a Prometheus's `ruleSelector` asks for,
            such as `release`.
    """
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": f"tachoscope-{name}", "labels": LABELS | dict(labels or {})},
        "spec": {"groups": list(groups)},
    }
