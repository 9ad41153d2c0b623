"""What is trained under the schedule of faults: data parallel over gloo, with shards, and checkpoints when they are due.

Each rank notes its steps and what it resumed from with its own clock, which is the truth of the benchmark.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections import OrderedDict
from pathlib import Path

import torch
import torch.distributed as dist

import tachoscope

STEPS_OF_SHARD = 20

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
parser.add_argument("--newest", action="store_true", help="resume from the newest checkpoint that is there")
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--every", type=int, required=True)
options = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
parallel = torch.nn.parallel.DistributedDataParallel(model)
checkpoints = sorted(Path().glob("checkpoint-*.pt"), key=lambda path: path.stat().st_mtime)
resume = str(checkpoints[-1]) if options.newest and checkpoints else options.resume
step = 0
if resume:
    with open("resumes.txt", "a") as notes:
        notes.write(f"{rank} {resume} {time.time()}\n")
    state = torch.load(resume, weights_only=True)
    model.load_state_dict(state["model"])
    step = state["step"]

left_out = set(Path("left-out.txt").read_text().split()) if Path("left-out.txt").exists() else set()
skipped = [tachoscope.quarantined() | left_out]
dist.broadcast_object_list(skipped, src=0)


def read(number: int) -> torch.Tensor:
    """Return what a shard holds; zeros for one that is skipped."""
    path = os.path.abspath(f"shards/part-{number:03}.txt")
    if path in skipped[0]:
        return torch.zeros(16, 64)
    with tachoscope.shard(path):
        return torch.full((16, 64), float(Path(path).read_text()))


class Slow:
    """Makes `torch.save` take as long as the file `slow-seconds` says."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        slow = Path("slow-seconds")
        time.sleep(float(slow.read_text()) if slow.exists() else 0.0)
        return OrderedDict, ()


def save() -> None:
    temporary = Path(f"checkpoint-{step}.pt.tmp")
    torch.save({"model": model.state_dict(), "step": step, "slow": Slow()}, temporary)
    temporary.rename(f"checkpoint-{step}.pt")


with open(f"steps-{rank}.txt", "a", buffering=1) as notes:
    batch = read(step // STEPS_OF_SHARD)
    while step < options.steps:
        began = time.time()
        if step % STEPS_OF_SHARD == 0:
            batch = read(step // STEPS_OF_SHARD)
        parallel(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.1)
        step += 1
        notes.write(f"{step} {began} {time.time()} {os.getpid()} {socket.gethostname()}\n")
        if tachoscope.checkpoint_due(step, every=options.every) and rank == 0:
            save()
dist.destroy_process_group()
