"""NCCL: do collectives run as fast as the network allows, and does a communicator hang?"""

from __future__ import annotations

from dataclasses import replace

from tachoscope_alerts.compile.links import board_uid
from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.metrics.nccl import COLLECTIVE_SECONDS
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.nccl import collectives as nccl_collectives
from tachoscope_dashboards.boards.nccl import communicators as nccl_communicators
from tachoscope_dashboards.parts.board import Board, BoardAnnotation
from tachoscope_dashboards.parts.panels import row
from tachoscope_dashboards.parts.variables import CLUSTER, JOB_NAMESPACE, NAMESPACE, NODE, OF_WORKLOADS, TRAINING_JOB, WHERE

_NODE = f'{WHERE}, instance=~"$node"'
_NODE_OF_JOB = f'{OF_WORKLOADS}, instance=~"$node"'
_JOB = f'{_NODE_OF_JOB}, training_job=~"$training_job"'
_JOBS = replace(TRAINING_JOB, source=f"{COLLECTIVE_SECONDS.name}_count{{{_NODE_OF_JOB}}}", some=True)
"""Those that write Inspector lines on the chosen nodes; never all, as the operations of 10,000 GPUs are 80,000 series."""


def board(policy: Policy) -> Board:
    """Return the board on NCCL: collectives and communicators."""
    return Board(
        uid=board_uid("nccl"),
        title="NCCL",
        question="Do collectives run as fast as the network allows, and does a communicator hang?",
        hint="NCCL's RAS reports communicators, and does not know jobs: these panels are of the chosen nodes. "
        "The Inspector reports collectives, of the chosen jobs. Time in them includes the waiting for later ranks, so their "
        "bandwidth is the least that the network gave: where it falls, see on the board Job whether a rank is late before you "
        "blame the network.",
        variables=(CLUSTER, NAMESPACE, NODE, JOB_NAMESPACE, _JOBS),
        panels=(
            row("Does a communicator hang, or lack ranks?"),
            *nccl_communicators.numbers(policy, _NODE),
            nccl_communicators.states(policy, _NODE),
            nccl_communicators.not_well(policy, _NODE),
            row("Are collectives as fast as they should be?"),
            *nccl_collectives.bandwidths(policy, _JOB),
            row("What costs the time?"),
            *nccl_collectives.times(policy, _JOB),
            nccl_collectives.operations(policy, _JOB),
            row("Can these numbers be believed?"),
            *nccl_collectives.uncounted_lines(policy, _NODE),
        ),
        events=(
            BoardAnnotation(
                "Communicators that begin to hang",
                f'sum by (instance) (delta(tachoscope_nccl_communicators{{{_NODE}, state="hung"}}[$__rate_interval])) > 0',
                "a communicator hangs, asked on {{instance}}",
                palette.STATE_COLORS["hung"],
            ),
        ),
        alerts='alertname=~"Nccl.+|CollectiveHang|JobHung"',
        refresh="30s",
    )
