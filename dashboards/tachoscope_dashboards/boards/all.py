"""The boards, from the whole fleet down."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_dashboards.board import Board
from tachoscope_dashboards.boards import agents, data, fleet, gpu_node, inference, nccl, slos, storage, training


def boards(policy: Policy) -> tuple[Board, ...]:
    """Return all boards."""
    return tuple(one.board(policy) for one in (fleet, training, gpu_node, nccl, data, storage, inference, slos, agents))
