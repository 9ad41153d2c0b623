"""Which kernels, annotations and operators are collectives, and of which kind, told by their names."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from tachoscope_analyzers.data.package_data import shipped

OTHER = "other"
"""Kind of a communication kernel whose name does not tell more, such as `ncclDevKernel_Generic`."""
TOTAL_OF_ALL_RANKS = ("all_gather", "gather")
"""Kinds whose message is what all ranks put in together."""
POINT_TO_POINT = ("send", "recv", "send_recv")
SYNCHRONOUS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier")
"""Kinds that no rank leaves before every rank has come, so they end at about the same time on all of them."""

_ON_HOST = re.compile(r"(nccl|rccl|gloo|mpi|ucc|xccl|hccl|ccl|oneccl):")
_LAUNCH_ONLY = ("nccl", "rccl", "xccl", "hccl")
"""Backends whose host annotations only launch device work."""
_NOT_MOVING = re.compile(
    r"^(wait|init|comm_?init|end_?coalescing|start_?coalescing|coalesced_?(start|end)|monitored.*)?$", re.IGNORECASE
)
_IGNORED = str.maketrans("", "", "_ :")


@cache
def _kinds() -> list[tuple[str, re.Pattern[str]]]:
    table = shipped("trace/events/collectives.yaml")
    return [(entry["kind"], re.compile(entry["pattern"])) for entry in table["kinds"]]


@lru_cache(1 << 14)
def collective_kind(name: str) -> str:
    """Return the kind of a collective by any of its names (`allreduce`, `_all_gather_base`, a kernel's), `other` when none fits."""
    text = name[:1000].lower().translate(_IGNORED)
    for kind, pattern in _kinds():
        if pattern.search(text):
            return kind
    return OTHER


def host_collective(name: str) -> tuple[str, str]:
    """Return backend and kind of an annotation such as `gloo:all_reduce`, two empty strings for one that is none."""
    found = _ON_HOST.match(name)
    if found is None or _NOT_MOVING.match(name[found.end() :]):
        return "", ""
    return found.group(1), collective_kind(name[found.end() :])


def moves_data(collective: str) -> bool:
    """Return whether an argument `Collective name` is that of a collective, and not of a wait or of the making of a group."""
    return _NOT_MOVING.match(collective) is None


def only_launches(backend: str) -> bool:
    """Return whether the host's calls of a backend only launch device work, which then does the transfer."""
    return backend in _LAUNCH_ONLY


def bus_factor(kind: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth, NaN when the number of ranks or the kind is not known.

    From https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md.
    """
    if ranks < 1 or kind in (OTHER, "barrier"):
        return float("nan")
    crossings = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}.get(kind)
    return 1.0 if crossings is None else crossings * (ranks - 1) / ranks
