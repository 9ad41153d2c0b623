"""The metrics of the agent about itself; what it uses of CPU and memory comes from prometheus-client's process collector."""

from __future__ import annotations

import importlib.metadata
import os
from collections import Counter
from typing import Protocol

from tachoscope_core.metrics import agent as names
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.config.settings import Config
from tachoscope_node.jobs.registry import JobRegistry
from tachoscope_node.spool.follower import Follower
from tachoscope_node.spool.shipper import Shipper
from tachoscope_service.metrics.family import Family


class MeasuredAgent(Protocol):
    """What of an agent is measured here."""

    config: Config
    live: JobRegistry
    follower: Follower
    shipper: Shipper
    errors: Counter[str]
    tick_seconds: float


_VERSION = importlib.metadata.version("tachoscope")


def families(agent: MeasuredAgent, now: float) -> list[Family]:
    """Return the families; called with the agent's lock held."""
    segments = agent.follower.segments()
    to_ship = agent.follower.to_ship()
    since = [segment.unshipped_since for segment in to_ship if segment.unshipped_since is not None]
    rejected = dict.fromkeys(names.REJECTION_REASONS, 0) | agent.live.rejected
    errors = dict.fromkeys(names.ERROR_PARTS, 0) | agent.errors
    for part, count in agent.shipper.errors.items():
        errors[part] += count
    return [
        Family(names.INFO, [((_VERSION,), 1.0)]),
        _one(names.RECORDS, agent.live.records),
        Family(names.REJECTED, [((reason,), float(count)) for reason, count in rejected.items()]),
        _one(names.BACKLOG, sum(max(segment.read - segment.shipped, 0) for segment in to_ship)),
        _one(names.LAG, now - min(since) if since else 0.0),
        _one(names.SHIPPED_BYTES, agent.shipper.bytes),
        _one(names.SHIPPED_OBJECTS, agent.shipper.objects),
        Family(names.ERRORS, [((part,), float(count)) for part, count in errors.items()]),
        _one(names.SEGMENTS, len(segments)),
        _one(names.UNREADABLE, len(agent.follower.unreadable)),
        *_free(agent),
        _one(names.TICK_SECONDS, agent.tick_seconds),
    ]


def _one(metric: Metric, value: float) -> Family:
    return Family(metric, [((), float(value))])


def _free(agent: MeasuredAgent) -> list[Family]:
    try:
        free = os.statvfs(agent.config.spool_path)
    except OSError:  # not made yet: nothing is known of it
        return []
    return [_one(names.SPOOL_FREE, free.f_bavail * free.f_frsize)]
