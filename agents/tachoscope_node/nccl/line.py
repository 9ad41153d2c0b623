"""One line of NCCL's Inspector: an operation of one communicator, as one rank of it saw it.

Its format: inspector_json.cc of https://github.com/NVIDIA/nccl/tree/master/plugins/profiler/inspector. Bus bandwidth is that of
nccl-tests, https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md: what the message weighs in all, times what each
link of a ring carries of a byte of it, by seconds. Whether the network itself reduced, which makes it less, the line does not say.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

MAX_RANKS = 1 << 20
MAX_MESSAGE_BYTES = 1 << 50
MAX_SECONDS = 7 * 86400.0
OTHER = "other"
_MAX_NAME = 64
_MOST_SEQUENCE = 1 << 63
_MOST_MICROSECONDS = 10**6 << 32

_OF_ALL_RANKS = frozenset({"all_gather", "reduce_scatter", "all_to_all"})
"""The Inspector gives what one rank contributes, or gets: the message of all of them is as many times that as there are ranks."""
_RING_SHARES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
"""How often each byte goes through (n - 1)/n of a ring. All bytes of the other kinds go through each link once."""
KINDS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "AllGatherV": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "All2All": "all_to_all",
    "AlltoAll": "all_to_all",
    "Gather": "gather",
    "Scatter": "scatter",
    "Send": "send",
    "Recv": "recv",
    "SendRecv": "send_recv",
}
"""NCCL's names of its functions, and torch's."""


class ImplausibleError(ValueError):
    """The line is the Inspector's, but its numbers cannot be."""


class Operation(NamedTuple):
    """An operation.

    Attributes:
        communicator: NCCL's hash of it, such as `0x1f`. name: that the program gave it; empty: none. rank, ranks: within it.
        collective: name as in `KINDS`, or `OTHER`. sequence: number within communicator and kind. peer: rank of it; -1: no send
            or receive. size_bytes: of the message, of all ranks together.
        seconds: from the first to the last of its kernel. said_bandwidth: of the bus, as the line says, bytes a second; 0: none.
        time: Unix seconds at which it was written, soon after it was done; 0: not known. pid: of the process, as it knows itself.
    """

    communicator: str
    name: str
    rank: int
    ranks: int
    collective: str
    sequence: int
    peer: int
    size_bytes: int
    seconds: float
    said_bandwidth: float
    time: float
    pid: int


class _Header(msgspec.Struct, gc=False):
    id: str
    rank: int
    n_ranks: int
    comm_name: str = ""


class _Metadata(msgspec.Struct, gc=False):
    dump_timestamp_us: int = 0
    pid: int = 0


class _Collective(msgspec.Struct, gc=False):
    coll: str
    coll_sn: int
    coll_msg_size_bytes: int
    coll_exec_time_us: int
    coll_busbw_gbs: float | str = 0.0


class _PointToPoint(msgspec.Struct, gc=False):
    p2p: str
    p2p_sn: int
    p2p_msg_size_bytes: int
    p2p_exec_time_us: int
    p2p_peer: int = -1
    p2p_busbw_gbs: float | str = 0.0


class _Line(msgspec.Struct, gc=False):
    header: _Header
    metadata: _Metadata
    coll_perf: _Collective | None = None
    p2p_perf: _PointToPoint | None = None


_decoder = msgspec.json.Decoder(_Line)


def bus_factor(collective: str, ranks: int) -> float:
    """Return the bytes that each link of a ring of n ranks carries for a byte of the message."""
    shares = _RING_SHARES.get(collective)
    return 1.0 if shares is None else shares * (ranks - 1) / ranks


def parse(line: bytes) -> Operation:
    """Return the operation that a line reports.

    Raises:
        ImplausibleError: numbers that cannot be. ValueError: no line of the Inspector.
    """
    try:
        found = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    header, metadata, collective, message = found.header, found.metadata, found.coll_perf, found.p2p_perf
    if collective is not None:
        kind, sequence, size = KINDS.get(collective.coll, OTHER), collective.coll_sn, collective.coll_msg_size_bytes
        microseconds, bandwidth, peer = collective.coll_exec_time_us, collective.coll_busbw_gbs, -1
        size = size * header.n_ranks if kind in _OF_ALL_RANKS else size
    elif message is not None:
        kind, sequence, size = KINDS.get(message.p2p, OTHER), message.p2p_sn, message.p2p_msg_size_bytes
        microseconds, bandwidth, peer = message.p2p_exec_time_us, message.p2p_busbw_gbs, message.p2p_peer
    else:
        raise ValueError("neither coll_perf nor p2p_perf")
    name, communicator, seconds = header.comm_name, header.id, microseconds / 1e6
    if not (
        0 <= header.rank < header.n_ranks <= MAX_RANKS
        and 0 <= size <= MAX_MESSAGE_BYTES
        and 0.0 <= seconds <= MAX_SECONDS
        and 0 <= sequence < _MOST_SEQUENCE
        and -1 <= peer < header.n_ranks
        and 0 <= metadata.dump_timestamp_us < _MOST_MICROSECONDS
        and communicator
    ):
        raise ImplausibleError(f"rank {header.rank} of {header.n_ranks}, {size} bytes, {seconds} s")
    return Operation(
        communicator[:_MAX_NAME],
        "" if name == "unknown" else name[:_MAX_NAME],
        header.rank,
        header.n_ranks,
        kind,
        sequence,
        peer,
        size,
        seconds,
        0.0 if isinstance(bandwidth, str) else bandwidth * 1e9,  # NCCL writes "nan" as a text
        metadata.dump_timestamp_us / 1e6,
        metadata.pid,
    )


def bus_bytes(found: Operation) -> float:
    """Return what each link of a ring carries for an operation; 0 where the line has no time to divide it by."""
    return found.size_bytes * bus_factor(found.collective, found.ranks) if found.seconds else 0.0


def bandwidth_differs(found: Operation, carried: float) -> bool:
    """Return whether the line gives a bus bandwidth, and another one by more than 1 % than follows from `bus_bytes`."""
    if not found.said_bandwidth or not found.seconds:
        return False
    # In bytes; the line has six decimals of a gigabyte a second.
    return abs(carried - found.said_bandwidth * found.seconds) > 0.01 * carried + 1e3 * found.seconds
