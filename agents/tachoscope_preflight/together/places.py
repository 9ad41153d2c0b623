"""Which of how many hosts this one is, and where the first one listens: from --hosts, torchrun or srun."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from tachoscope.process.identity import place
from tachoscope_core.errors import TachoscopeError

_FIRST_OF_LIST = re.compile(r"(?P<stem>[^,\[]+)(?:\[(?P<number>\d+)[^\]]*\](?P<tail>[^,]*))?")


@dataclass(frozen=True, slots=True)
class Seat:
    """A host's rank of `size`, and where the first one listens.

    Attributes:
        names: of the hosts by rank, as far as they are known before they meet.
        listens: whether this process opens the port; else another one has, such as torchrun.
    """

    rank: int
    size: int
    master: str
    port: int
    listens: bool
    names: tuple[str, ...] = ()

    def name(self, rank: int) -> str:
        """Return how to call a host that did not come."""
        return self.names[rank] if rank < len(self.names) else f"rank {rank}"


def seat(environ: Mapping[str, str], hosts: str | None, port: int) -> Seat | None:
    """Return this host's seat; None: it is alone.

    Raises:
        TachoscopeError: this host is not among --hosts, several ranks are on one host, or nothing says where the first one is.
    """
    if hosts is not None:
        return _of_list([host.strip() for host in hosts.split(",") if host.strip()], port)
    found = place(environ)
    if found is None or found.world_size < 2:
        return None
    if found.local_rank > 0 or environ.get("LOCAL_WORLD_SIZE", "1") != "1":
        raise TachoscopeError("several ranks were started on this host", fix="start one: --nproc-per-node 1, --ntasks-per-node 1")
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    master = environ.get("MASTER_ADDR") or _first_host(nodes)
    if not master:
        raise TachoscopeError("nothing says where the first host is", fix="set MASTER_ADDR, or name all with --hosts")
    listens = found.rank == 0 and environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return Seat(found.rank, found.world_size, master, _port(environ, port), listens)


def _of_list(hosts: list[str], port: int) -> Seat | None:
    own = socket.gethostname()
    if len(set(hosts)) != len(hosts):
        raise TachoscopeError(f"--hosts names a host twice: {', '.join(hosts)}")
    short = [host.partition(".")[0] for host in hosts]
    rank = next((index for index, host in enumerate(hosts) if host == own or short[index] == own.partition(".")[0]), None)
    if rank is None:
        raise TachoscopeError(f"this host, {own}, is not among --hosts {', '.join(hosts)}", fix="name hosts as `hostname` does")
    return Seat(rank, len(hosts), hosts[0], port, rank == 0, tuple(hosts)) if len(hosts) > 1 else None


def _port(environ: Mapping[str, str], port: int) -> int:
    said = environ.get("MASTER_PORT", "")
    return int(said) if said.isdecimal() and 0 < int(said) < 65536 else port


def _first_host(nodes: str) -> str:
    """Return the first of Slurm's list of nodes, such as `gpu[003-010,012]-a`."""
    match = _FIRST_OF_LIST.match(nodes)
    return f"{match['stem']}{match['number'] or ''}{match['tail'] or ''}" if match else ""
