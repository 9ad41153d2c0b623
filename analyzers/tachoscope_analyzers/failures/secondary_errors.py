"""Errors that say that another rank is gone, late or stuck: what a rank raises that waits for it, and what follows when a job ends.

The texts are those of the communication libraries, where a rank notices the loss of a peer: gloo (`gloo/transport/tcp/pair.cc`,
`unbound_buffer.cc`), c10d (`TCPStore.cpp`, `socket.cpp`, `ProcessGroupNCCL.cpp`, `ProcessGroupGloo.cpp`, `ProcessGroupWrapper.cpp`
in https://github.com/pytorch/pytorch/tree/main/torch/csrc/distributed/c10d), NCCL (`src/transport/net_socket.cc`,
`ncclRemoteError` of https://github.com/NVIDIA/nccl) and torchelastic (`torch/distributed/elastic/rendezvous/api.py`).
"""

from __future__ import annotations

import re

_TYPES = frozenset(
    {
        "RuntimeError",
        "DistBackendError",
        "DistNetworkError",
        "DistStoreError",
        "DistError",
        "RendezvousClosedError",
        "RendezvousConnectionError",
        "RendezvousTimeoutError",
    }
)
"""Only of these: a `ConnectionResetError` comes from a server of the job's own, such as one of data."""
_PEER = re.compile(
    r"Connection (?:closed|reset) by peer"
    r"|Connection refused \[|Broken pipe"
    r"|[Tt]imed out waiting \d+ ?ms"
    r"|Application timeout caused pair closure"
    r"|Read error|Write error"
    r"|(?:wait|get|Wait) ?timeout after \d+ ?ms|[Ss]ocket [Tt]imeout"
    r"|[Tt]imed out after \d+ seconds waiting for clients"
    r"|The client socket has timed out|[Ff]ailed to recv|failed to send|Failed to (?:connect|wait)|got 0 bytes"
    r"|Gloo connectFullMesh failed|connect(?:FullMesh)? .{0,40}timed? ?out"
    r"|Watchdog caught collective operation timeout|[Ss]ome NCCL operations have failed or timed out"
    r"|NCCL communicator (?:was|has been) aborted|remote process (?:has )?(?:exited|terminated)|ncclRemoteError"
    r"|monitoredBarrier|[Rr]endezvous.{0,60}(?:closed|timed? ?out)"
    r"|Detected mismatch between collectives"
)
_TIMEOUT = re.compile(r"[Tt]imed? ?out|TIMEOUT")
_LISTENS = re.compile(r"EADDRINUSE|failed to listen|address already in use")
"""These say of the process itself what is wrong, though they are errors of the network."""
_AWAITED = re.compile(r"Ranks? (?P<ranks>\d+(?:, ?\d+)*) failed to pass monitoredBarrier")
_GONE = frozenset({"KeyboardInterrupt", "SignalException"})


def is_secondary(exception: str, message: str) -> bool:
    """Return whether an error says that another rank is the cause, or that the process was terminated."""
    if was_told_to_end(exception):
        return True
    return exception in _TYPES and _PEER.search(message) is not None and _LISTENS.search(message) is None


def says_secondary(line: str) -> bool:
    """Return whether the last line before an exit is of such an error: `multiprocessing` prints it and then calls `os._exit`."""
    exception, _, message = line.partition(": ")
    return is_secondary(exception.rpartition(".")[2], message)


def was_told_to_end(exception: str) -> bool:
    """Return whether an exception comes from a signal that asks a process to end."""
    return exception in _GONE


def may_be_secondary(exception: str) -> bool:
    """Return whether errors of a type may say that another rank is the cause, by their message."""
    return exception in _TYPES


def is_timeout(message: str) -> bool:
    """Return whether an error says that another rank did not come for long, rather than that it is gone."""
    return _TIMEOUT.search(message) is not None


def awaited_ranks(message: str) -> list[int]:
    """Return the ranks that an error names as those which did not come; empty: it names none."""
    found = _AWAITED.search(message)
    return [int(rank) for rank in found["ranks"].split(",")] if found else []
