"""One rank of a real gloo job that comes to a standstill; a thread of it writes the recorder's dump when it is told to.

python hanging_gloo.py FOLDER RANK RANKS HOW
"""

import ctypes
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

CULPRIT = 1
MIB = 1 << 18
"""In numbers of 4 bytes: for unlike sizes gloo's ring hangs, instead of ending the process, if all are cut into such segments."""
pending: list[object] = []


def write_dump_when_told(folder: Path, rank: int) -> None:
    while not (folder / "go").exists():
        time.sleep(0.05)
    path = folder / f"unfinished_{rank}"
    path.write_bytes(_distributed_c10d._dump_fr_trace())
    path.rename(folder / f"nccl_trace_rank_{rank}")


def culprit(how: str) -> None:
    if how == "skipped":
        time.sleep(600)
    elif how == "lock":
        ctypes.PyDLL(None).sleep(600)  # a call through PyDLL keeps the interpreter's lock
    elif how == "size":
        pending.append(dist.broadcast(torch.ones(9), 0, async_op=True))
    elif how in ("larger", "smaller"):
        pending.append(dist.all_reduce(torch.ones((16 if how == "larger" else 8) * MIB), async_op=True))
    elif how == "order":
        pending.append(dist.broadcast(torch.ones(8), 0, async_op=True))
        pending.append(dist.all_reduce(torch.ones(8), async_op=True))


def others(how: str, rank: int) -> None:
    if how == "size":
        if rank == 0:
            time.sleep(600)  # the root: gloo ends a process that gets more than it has room for, so nothing may be sent
        pending.append(dist.broadcast(torch.ones(8), 0, async_op=True))
    elif how in ("larger", "smaller"):
        pending.append(dist.all_reduce(torch.ones((8 if how == "larger" else 16) * MIB), async_op=True))
    elif how != "none":
        pending.append(dist.all_reduce(torch.ones(8), async_op=True))
        pending.append(dist.broadcast(torch.ones(8), 0, async_op=True))


def main() -> None:
    folder, rank, ranks, how = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    threading.Thread(target=write_dump_when_told, args=(folder, rank), daemon=True).start()
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    dist.barrier()
    (folder / f"through_{rank}").touch()  # a dump from before would still have the barrier
    if rank == CULPRIT:
        culprit(how)
    else:
        others(how, rank)
    (folder / f"there_{rank}").touch()  # what it enqueues is enqueued
    time.sleep(600)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
