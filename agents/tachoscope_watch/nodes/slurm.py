"""Drains and resumes nodes of Slurm with scontrol, as an operator of it: https://slurm.schedmd.com/scontrol.html."""

from __future__ import annotations

import re
from collections.abc import Collection

from tachoscope_core.errors import TachoscopeError
from tachoscope_service.common import slurm_client
from tachoscope_watch.nodes.actuator import MARK, reason_text
from tachoscope_watch.nodes.states import Seen

_TIMEOUT_SECONDS = 30.0
_FORMAT = "NodeList:0|,StateLong:0|,Reason:0|"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
"""Of one node: scontrol takes `node[1-9]` and `ALL` for many."""
_IN_USE = ("alloc", "mix", "comp", "draining")


class SlurmNodes:
    """The nodes of a cluster, by the programs and the configuration that Slurm's own clients use."""

    name = "slurm"
    starts_tests = False

    def nodes(self, now: float, out: Collection[str]) -> dict[str, Seen]:  # noqa: ARG002  # Slurm says of all whether they are busy
        """Return all nodes."""
        found = {}
        for line in _ask("sinfo", "--all", "--Node", "--noheader", f"--Format={_FORMAT}").splitlines():
            name, state, reason = [*(field.strip() for field in line.split("|", 2)), "", ""][:3]
            reason = reason.removesuffix("|")
            drained = "drain" in state
            drained_by = ("us" if reason.startswith(MARK.strip()) else "others") if drained else ""
            busy = any(word in state for word in _IN_USE)
            found[name] = Seen(name, now, drained_by, busy, reason if drained else "")  # type: ignore[arg-type]
        return found

    def drain(self, node: str, reason: str) -> None:
        """Drain a node."""
        _ask("scontrol", "update", f"nodename={_one(node)}", "state=drain", f"reason={reason_text(reason)}")

    def resume(self, node: str) -> None:
        """Undrain a node; one that is down stays so."""
        _ask("scontrol", "update", f"nodename={_one(node)}", "state=undrain")

    def test(self, node: str, test: str, seconds: float) -> None:
        """Do nothing: slurmd's HealthCheckProgram tests a node that is drained."""


def _one(node: str) -> str:
    if not _NAME.fullmatch(node) or node.upper() == "ALL":
        raise TachoscopeError(f"{node!r} is not the name of one node")
    return node


def _ask(*command: str) -> str:
    answer = slurm_client.ask(command, seconds=_TIMEOUT_SECONDS)
    if answer.code:
        raise TachoscopeError(f"{command[0]} failed: {answer.said or answer.output.strip()[:200] or f'exit code {answer.code}'}")
    return answer.output
