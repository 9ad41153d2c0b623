"""Lines as NCCL's Inspector writes them, format v4.0 (inspector_json.cc), and a writer that keeps its own offset as it does."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tachoscope_core.metrics.nccl import COLLECTIVE_SECONDS
from tachoscope_service.metrics.family import Family, Histogram, Labels

SHARES = {"AllReduce": 2.0, "AllGather": 1.0, "ReduceScatter": 1.0}


def line(
    coll: str = "AllReduce",
    *,
    sequence: int = 0,
    rank: int = 0,
    ranks: int = 4,
    size: int = 1 << 24,
    microseconds: int = 1000,
    pid: int = 0,
    comm: str = "0x9e17999afaa87dbb",
    name: str = "unknown",
    **perf: Any,
) -> dict[str, Any]:
    """Return a line of a collective; `size` is per rank where the Inspector's is. `perf` replaces what the line says."""
    whole = size * ranks if coll in ("AllGather", "ReduceScatter") else size
    algorithm = whole / 1e9 / (microseconds / 1e6) if microseconds and coll != "All2All" else 0.0
    factor = SHARES[coll] * (ranks - 1) / ranks if coll in SHARES else 1.0
    return _head(rank, ranks, pid, comm, name) | {
        "coll_perf": {
            "coll": coll,
            "coll_sn": sequence,
            "coll_msg_size_bytes": size,
            "coll_exec_time_us": microseconds,
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": round(algorithm, 6),
            "coll_busbw_gbs": round(algorithm * factor, 6),
        }
        | perf
    }


def message(
    kind: str = "Send", *, peer: int = 1, sequence: int = 0, rank: int = 0, ranks: int = 4, pid: int = 0, **perf: Any
) -> dict[str, Any]:
    """Return a line of a send or a receive of 1 MiB."""
    return _head(rank, ranks, pid, "0x9e17999afaa87dbb", "unknown") | {
        "p2p_perf": {
            "p2p": kind,
            "p2p_sn": sequence,
            "p2p_peer": peer,
            "p2p_msg_size_bytes": 1 << 20,
            "p2p_exec_time_us": 100,
            "p2p_timing_source": "kernel_gpu",
            "p2p_algobw_gbs": 10.48576,
            "p2p_busbw_gbs": 10.48576,
        }
        | perf
    }


def _head(rank: int, ranks: int, pid: int, comm: str, name: str) -> dict[str, Any]:
    return {
        "header": {"id": comm, "comm_name": name, "rank": rank, "n_ranks": ranks, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "v2.28.9-1",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": int(time.time() * 1e6),
            "hostname": "node-1",
            "pid": pid or os.getpid(),
        },
    }


class Inspector:
    """A process's file, opened as the Inspector does: by fopen's `w`, not for appending, and open to everybody."""

    def __init__(self, folder: Path, pid: int = 0, name: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.pid = pid or os.getpid()
        self.path = folder / (name or f"node-1-pid{self.pid}.log")
        self.file = self.path.open("wb")
        self.path.chmod(0o666)

    def write(self, *lines: dict[str, Any] | bytes) -> None:
        for one in lines:
            self.file.write(one if isinstance(one, bytes) else json.dumps(one, separators=(",", ":")).encode() + b"\n")
        self.file.flush()

    def operation(self, coll: str = "AllReduce", count: int = 1, **fields: Any) -> None:
        """Write that many operations of this process, numbered from `sequence` on."""
        first = fields.pop("sequence", 0)
        self.write(*(line(coll, pid=self.pid, sequence=first + number, **fields) for number in range(count)))


def histograms(families: list[Family]) -> dict[Labels, Histogram]:
    """Return the histograms of operations by their labels."""
    rows = next((family.points for family in families if family.metric is COLLECTIVE_SECONDS), ())
    return {labels: value for labels, value in rows if isinstance(value, Histogram)}
