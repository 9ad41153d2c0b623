"""Is the node fit for work? A verdict by the states of its GPUs and by how many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tachoscope_node.gpu.health.rules import HealthVerdict, Reason, Severity, gravest_state, not_measured_at_all

_MISSING: Mapping[str, tuple[str, str]] = {
    "works": ("the driver works and lists no more", "inspect_hardware"),
    "starting": ("the driver is starting", "none"),
    "absent": (
        "no driver or exporter can be asked: see gpu.enabled, gpu.expected and the mount of its library",
        "check_configuration",
    ),
    "error": ("the driver does not start", "drain_node"),
}
"""What is said of GPUs that are missing, and the action, by how the driver is. A count alone is not a reason to reboot."""


def judge_node(states: Sequence[str], there: int, expected: int, *, driver: str = "works", starting: bool = False) -> HealthVerdict:
    """Judge the node by the states of its GPUs and by how many the driver has not lost.

    Args:
        driver: one of DRIVERS. starting: the agent was started only just.
    """
    reasons = []
    if there < expected:
        says, action = _MISSING[driver]
        severity: Severity = "unhealthy"
        if starting or driver == "starting":
            severity, action = "unknown", "none"
        text = f"GPUs that the node has: {there} < {expected} expected; {says}"
        reasons.append(Reason("gpus_missing", float(there), "<", float(expected), severity, action, text))
    elif not states:
        reasons.append(not_measured_at_all("no GPU was read"))
    return HealthVerdict(gravest_state([*states, *(reason.severity for reason in reasons)]), tuple(reasons))
