"""The Job of Kubernetes that tests a node which is out: https://kubernetes.io/docs/concepts/workloads/controllers/job/."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping
from typing import Any

NODE_VARIABLE = "TACHOSCOPE_NODE"
"""Environment variable of its containers with the name of the node, for `tachoscope nodes test --node $(TACHOSCOPE_NODE)`."""
_KEPT_SECONDS = 86400
"""After its end a Job is kept for its log."""


def preflight_job(node: str, test: str, pod: Mapping[str, Any], taint: str, seconds: float) -> dict[str, Any]:
    """Return the Job of a test, with the same name each time: so it is created once.

    Args:
        pod: its PodSpec, but for what keeps it on the node. taint: of nodes that are out. seconds: after which it is ended.
    """
    spec = copy.deepcopy(dict(pod))
    for container in spec["containers"]:
        container["env"] = [*container.get("env", ()), {"name": NODE_VARIABLE, "value": node}]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec |= {
        "restartPolicy": "Never",
        "affinity": {**spec.get("affinity", {}), "nodeAffinity": affinity},
        "tolerations": [*spec.get("tolerations", ()), {"key": taint, "operator": "Exists"}],
    }
    labels = {"app.kubernetes.io/managed-by": "tachoscope"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": _name(node, test), "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": math.ceil(seconds),
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _name(node: str, test: str) -> str:
    return f"tachoscope-test-{hashlib.sha256(f'{node} {test}'.encode()).hexdigest()[:16]}"
