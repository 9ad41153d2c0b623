"""The boards, from the whole fleet down."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_dashboards.boards.checkpoints import board as storage
from tachoscope_dashboards.boards.data import board as data
from tachoscope_dashboards.boards.fleet import board as fleet
from tachoscope_dashboards.boards.gpu import board as gpu_node
from tachoscope_dashboards.boards.inference import board as inference
from tachoscope_dashboards.boards.nccl import board as nccl
from tachoscope_dashboards.boards.slos import board as slos
from tachoscope_dashboards.boards.suite import board as agents
from tachoscope_dashboards.boards.training import board as training
from tachoscope_dashboards.parts.board import Board


def boards(policy: Policy) -> tuple[Board, ...]:
    """Return the boards in the order of their navigation."""
    return tuple(one.board(policy) for one in (fleet, training, gpu_node, nccl, data, storage, inference, slos, agents))
