"""Metrics of `tachoscope watch` itself; what it says about jobs is among those of training."""

from __future__ import annotations

from tachoscope_core.metrics.metric import Metric

JOB_STATES = ("judged", "unjudged", "failed", "left_out")
"""What became of a live job: a report; none, since it has too few steps or serves requests; an error; more than are shown."""

WATCH_JOBS = Metric("tachoscope_watch_jobs", "Live jobs in the last cycle of the watch.", ("state",), JOB_STATES)
WATCH_CYCLE_SECONDS = Metric("tachoscope_watch_cycle_seconds", "How long the last cycle of the watch took.")
WATCH_LAST_CYCLE = Metric("tachoscope_watch_last_cycle_timestamp_seconds", "When the last cycle of the watch ended, Unix time.")
WATCH_SHARE = Metric(
    "tachoscope_watch_share_ratio",
    "Part of the jobs that this watch has: 1 over the number of watches that share them; 0: it has none now.",
)

NODE_STATES = ("suspect", "quarantined", "draining", "testing", "returned")
"""States of the nodes' life cycle; all other nodes are healthy as far as is known, and not counted."""
NODE_ACTIONS = ("drain", "resume", "test")
ACTION_OUTCOMES = ("done", "failed", "dry_run")
WATCH_NODES = Metric("tachoscope_watch_nodes", "Nodes by state of their life cycle.", ("state",), NODE_STATES)
WATCH_NODES_HELD = Metric("tachoscope_watch_nodes_held", "Nodes that should be taken out and are not: a limit or the breaker.")
WATCH_NODES_BREAKER = Metric(
    "tachoscope_watch_nodes_breaker_open", "1: too many nodes were suspect at once, and none is taken out until a person looked."
)
WATCH_NODES_LAST_LOOK = Metric(
    "tachoscope_watch_nodes_last_look_timestamp_seconds", "When the scheduler last reported its nodes, Unix time."
)
WATCH_NODE_ACTIONS = Metric(
    "tachoscope_watch_node_actions_total", "Actions on nodes since the watch started, by outcome.", ("action", "outcome")
)

WATCH_METRICS = (
    WATCH_JOBS,
    WATCH_CYCLE_SECONDS,
    WATCH_LAST_CYCLE,
    WATCH_SHARE,
    WATCH_NODES,
    WATCH_NODES_HELD,
    WATCH_NODES_BREAKER,
    WATCH_NODES_LAST_LOOK,
    WATCH_NODE_ACTIONS,
)
