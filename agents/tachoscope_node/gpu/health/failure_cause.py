"""Whether a node knows that one of its GPUs ended a job: what can be said for sure, and nothing that can be guessed."""

from __future__ import annotations

from collections.abc import Iterable

from tachoscope_node.gpu.reading import Reading
from tachoscope_node.gpu.workloads.device_ids import key, uuid_keys
from tachoscope_node.gpu.xid.counter import XidError

SLACK_SECONDS = 60.0
"""A rank's host runs ahead of its GPU, and other ranks of one that is broken may finish a step more."""


def gpu_failed(gpus: Iterable[str], since: float, readings: Iterable[Reading], errors: Iterable[XidError]) -> bool:
    """Return whether a GPU that a job used is lost, or had an error after which it has to be reset.

    Errors that an application can cause, and those that work survives, prove nothing.

    Args:
        gpus: UUIDs. since: when the job last finished a step, in Unix seconds. errors: Xids, of all GPUs and times.
    """
    used = {found for uuid in gpus if (found := key(uuid)) is not None}
    if any(not reading.up and reading.fault == "lost" and used & uuid_keys(reading.gpu) for reading in readings):
        return True
    return any(
        seen.xid.severity == "unhealthy" and seen.last_seen >= since - SLACK_SECONDS and key(seen.uuid) in used for seen in errors
    )
