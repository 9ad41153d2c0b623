"""The parts that all objects of Kubernetes have: names, owners, times, conditions, the accelerators of a pod's specification."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tachoscope_analyzers.schedulers.common.untyped import at, items, mapping, text

_ACCELERATORS = (
    "nvidia.com/gpu", "nvidia.com/mig-", "amd.com/gpu", "gpu.intel.com/",
    "habana.ai/gaudi", "google.com/tpu", "aws.amazon.com/neuron",
)  # fmt: skip
"""How the names of their resources begin, by their vendors' device plugins."""

_PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition of an object (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions).

    Attributes:
        time: Unix seconds at which it took its present status; None: not told.
    """

    type: str
    true: bool
    time: float | None
    reason: str = ""
    message: str = ""

    def text(self) -> str:
        """Return reason and message, as the controller wrote them."""
        return ": ".join(part for part in (self.reason, self.message) if part)


def seconds(value: object) -> float | None:
    """Return the Unix seconds of an RFC 3339 time; None if it is none."""
    try:
        time = datetime.fromisoformat(text(value))
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def as_integer(value: object) -> int | None:
    """Return an integer, or None for anything else, true and false included."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def conditions(document: object) -> dict[str, Condition]:
    """Return the conditions of an object by their type."""
    found = (
        Condition(
            type=text(at(one, "type")),
            true=at(one, "status") == "True",
            time=seconds(at(one, "lastTransitionTime")),
            reason=text(at(one, "reason")),
            message=text(at(one, "message")),
        )
        for one in items(document, "status", "conditions")
    )
    return {one.type: one for one in found}


def kind(document: object) -> tuple[str, str]:
    """Return the API group, empty for the core, and the kind."""
    group, _, _ = text(at(document, "apiVersion")).rpartition("/")
    return group, text(at(document, "kind"))


def name(document: object) -> str:
    """Return `namespace/name` of an object; `default/` without a namespace."""
    return f"{text(at(document, 'metadata', 'namespace')) or 'default'}/{text(at(document, 'metadata', 'name'))}"


def key(document: object) -> str:
    """Return what no other object has: its UID, or where that was left out, its kind and name."""
    return text(at(document, "metadata", "uid")) or f"{kind(document)[1]}/{name(document)}"


def owner(document: object) -> dict[str, Any] | None:
    """Return the reference to the object that made this one, or None."""
    references = [one for one in items(document, "metadata", "ownerReferences") if isinstance(one, dict)]
    return next((one for one in references if one.get("controller")), references[0] if references else None)


def labels(document: object) -> dict[str, str]:
    """Return annotations and labels together, labels first."""
    found = {**mapping(document, "metadata", "annotations"), **mapping(document, "metadata", "labels")}
    return {str(name): str(value) for name, value in found.items()}


def accelerators(pod_specification: object) -> tuple[int, str]:
    """Return how many accelerators a pod of this specification gets, and their kind.

    The kind is the product that the node selector asks for, else the name of the resource, such as
    `nvidia.com/mig-1g.10gb`. Limits equal requests for such resources
    (https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/). Init containers run before the others and share their devices.
    """
    count, resources = 0, set()
    for container in items(pod_specification, "containers"):
        asked = mapping(container, "resources", "limits") or mapping(container, "resources", "requests")
        for resource, amount in asked.items():
            if str(resource).startswith(_ACCELERATORS) and str(amount).isdecimal() and int(amount):
                count += int(amount)
                resources.add(str(resource))
    selector = mapping(pod_specification, "nodeSelector")
    product = next((text(selector.get(label)) for label in _PRODUCT_LABELS if selector.get(label)), "")
    return count, (product or ",".join(sorted(resources))) if count else ""
