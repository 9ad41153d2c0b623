"""Data pipeline: is training starved of input, and by what?"""

from __future__ import annotations

from tachoscope_alerts.compile.links import board_uid
from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.data import waiting as input_panels
from tachoscope_dashboards.boards.shared import gpus as gpu_panels
from tachoscope_dashboards.boards.shared import hosts as host_panels
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared import io as io_panels
from tachoscope_dashboards.boards.shared.expressions import RATE
from tachoscope_dashboards.parts.board import Board, BoardAnnotation
from tachoscope_dashboards.parts.panels import PlacedPanel, row
from tachoscope_dashboards.parts.variables import CLUSTER, JOB_CLUSTER, JOB_NAMESPACE, NAMESPACE, ONE_JOB, THIS_JOB, Variable

NODES = Variable("node", "instance", f"tachoscope_job_active{{{THIS_JOB}}}", "Nodes of the job", listed=True)
_NODE = f'{JOB_CLUSTER}, instance=~"$node"'
_JOB = f'{THIS_JOB}, instance=~"$node"'

_HINT = (
    "The first table is of all jobs; a click on one chooses it. All else is of the job that is chosen above: which ranks wait, "
    "what cannot be read, and what the hosts of its ranks are short of. Reading and decoding cannot be distinguished from outside: "
    "with idle processors it is the storage or too few workers, with busy ones the decoding."
)


def board(policy: Policy) -> Board:
    """Return the board on the input of trainings: waits, shards, and the hosts that read them."""
    return Board(
        uid=board_uid("data"),
        title="Data pipeline",
        question="Is training starved of input, and by what?",
        hint=_HINT,
        variables=(CLUSTER, NAMESPACE, JOB_NAMESPACE, *ONE_JOB, NODES),
        panels=(
            row("Which jobs wait for data?"),
            input_panels.jobs(policy),
            row("Is this job starved?"),
            *input_panels.starved(policy, _JOB),
            row("Which ranks wait?"),
            *input_panels.ranks(policy, _JOB),
            row("By what: data that cannot be read?"),
            *input_panels.shards(policy, _JOB),
            row("By what: storage and network?"),
            *io_panels.disks_and_network(policy, _NODE),
            row("By what: processors and memory?"),
            *_computing(policy),
            row("By what: copies to the device?"),
            input_panels.copies(policy, _JOB),
            gpu_panels.pcie_bytes(policy, _NODE),
        ),
        events=_events(),
        alerts='alertname=~"DataShardFailing|TrainingInputWaitBurn", training_job=~"$training_job|"',
    )


def _events() -> tuple[BoardAnnotation, ...]:
    return (
        BoardAnnotation(
            "Restarts",
            f"max by ({identity.JOB}) (increase(tachoscope_restarts_total{{{_JOB}}}{RATE})) > 0",
            f"{identity.JOB_LEGEND} was restarted",
            palette.WARN,
        ),
        BoardAnnotation(
            "Shards quarantined",
            f"max by ({identity.JOB}) (delta(tachoscope_shards_quarantined{{{_JOB}}}{RATE})) > 0",
            f"a shard of {identity.JOB_LEGEND} was quarantined",
            palette.BAD,
        ),
    )


def _computing(policy: Policy) -> list[PlacedPanel]:
    return [
        host_panels.cpu(policy, _NODE),
        host_panels.pressure(policy, _NODE),
        host_panels.quota(policy, _JOB),
        host_panels.memory(policy, _NODE),
        host_panels.faults(policy, _NODE),
        host_panels.killed(policy, _NODE),
    ]
