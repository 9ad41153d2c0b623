"""Plants dumps as PyTorch writes them: ranks, groups, what each enqueued and completed."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class PlantedDump:
    """The recorder of one rank; groups are numbered in the order in which they are named."""

    rank: int
    groups: dict[str, tuple[str, list[int]]]
    entries: list[dict[str, Any]] = field(default_factory=list)
    last: dict[str, list[int]] = field(default_factory=dict)
    now: int = 1_000_000_000_000_000_000

    def enqueue(
        self, group: str, name: str = "all_reduce", *, sizes: Any = ((8,),), dtype: str = "Float", done: bool = False
    ) -> None:
        """Enqueue the group's next collective; `done`: the device completed it, and all before it."""
        last = self.last.setdefault(group, [0, 0])
        last[0] += 1
        if done:
            last[1] = last[0]
            return  # as in dumps of what is active only
        self._add(group, name, last[0], 0, [list(size) for size in sizes], dtype)

    def message(self, group: str, name: str, sequence: int) -> None:
        self._add(group, name, 0, sequence, [[8]], "Float")

    def _add(self, group: str, name: str, sequence: int, p2p: int, sizes: list[list[int]], dtype: str) -> None:
        self.now += 1_000_000
        self.entries.append(
            {
                "record_id": len(self.entries),
                "pg_id": list(self.groups).index(group),
                "process_group": (group, self.groups[group][0]),
                "collective_seq_id": sequence,
                "p2p_seq_id": p2p,
                "op_id": sequence or p2p,
                "profiling_name": f"nccl:{name}",
                "time_created_ns": self.now,
                "input_sizes": sizes,
                "input_dtypes": [dtype],
                "output_sizes": sizes,
                "output_dtypes": [dtype],
                "state": "scheduled",
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None,
                "retired": False,
                "timeout_ms": 600000,
                "is_p2p": bool(p2p),
                "frames": [{"name": "step", "filename": "/home/me/train.py", "line": 12}],
            }
        )

    def document(self) -> dict[str, Any]:
        return {
            "version": "2.9",
            "pg_config": {name: {"name": name, "desc": text, "ranks": str(ranks)} for name, (text, ranks) in self.groups.items()},
            "pg_status": {
                str(number): {
                    "last_enqueued_collective": self.last.get(name, [0, 0])[0],
                    "last_started_collective": -1,
                    "last_completed_collective": self.last.get(name, [0, 0])[1],
                }
                for number, name in enumerate(self.groups)
            },
            "entries": self.entries,
        }

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"nccl_trace_rank_{self.rank}"
        path.write_bytes(pickle.dumps(self.document(), 2))
        return path


def world(ranks: int, *, before: int = 5) -> dict[int, PlantedDump]:
    """Return the dumps of a data parallel job whose first collectives have completed."""
    group = {"0": ("default_pg", list(range(ranks)))}
    found = {rank: PlantedDump(rank, dict(group)) for rank in range(ranks)}
    for dump in found.values():
        for _ in range(before):
            dump.enqueue("0", done=True)
    return found


def standing(folder: Path, ranks: int = 4, culprit: int = 2) -> Path:
    """Write the dumps of a job of which one rank stays away from the sixth collective."""
    dumps = world(ranks)
    for rank, dump in dumps.items():
        if rank != culprit:
            dump.enqueue("0", sizes=((8, 3),))
            dump.now += 30_000_000_000
            dump.enqueue("0")
        dump.write(folder)
    return folder
