"""What is trained under planted faults: data parallel over gloo, with shards, and checkpoints when they are due.

Each rank notes its steps, its saves and what it resumed from with its own clock, which is the truth of the benchmarks. It reduces
gradients and updates parameters itself: torch's optimizers and DistributedDataParallel import its compiler, which takes as long
as the rest of a start.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path

import numpy
import torch
import torch.distributed as dist

import tachoscope

STEPS_OF_SHARD = 20
RATE = 0.01
BYTES = 256 << 10
"""Of a checkpoint, so that a limit on bytes per second is felt."""

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
parser.add_argument("--newest", action="store_true", help="resume from the newest checkpoint that is there")
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--every", type=int, required=True, help="steps between checkpoints")
parser.add_argument("--seconds", type=float, default=0.1, help="of a step")
parser.add_argument("--checkpoints", type=Path, default=Path())
parser.add_argument("--shards", type=Path)
options = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
filling = torch.zeros(BYTES // 4)
checkpoints = sorted(options.checkpoints.glob("checkpoint-*.pt"), key=lambda path: path.stat().st_mtime)
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
    """Return what a shard holds; zeros for one that is skipped, and without shards."""
    path = os.path.abspath(f"{options.shards}/part-{number:03}.npz")
    if options.shards is None or path in skipped[0]:
        return torch.zeros(16, 64)
    with tachoscope.shard(path), numpy.load(path) as shard:
        return torch.from_numpy(shard["samples"])


def save() -> None:
    path = options.checkpoints / f"checkpoint-{step}.pt"
    temporary = path.with_name(f"{path.name}.tmp")
    torch.save({"model": model.state_dict(), "step": step, "filling": filling}, temporary)
    temporary.rename(path)
    with open("saves.txt", "a") as notes:
        notes.write(f"{step} {time.time()}\n")


def train(batch: torch.Tensor) -> None:
    """Take a step of gradient descent."""
    model(batch).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter -= RATE / dist.get_world_size() * parameter.grad
            parameter.grad = None


with open(f"steps-{rank}.txt", "a", buffering=1) as notes:
    batch = read(step // STEPS_OF_SHARD)
    while step < options.steps:
        began = time.time()
        if step % STEPS_OF_SHARD == 0:
            batch = read(step // STEPS_OF_SHARD)
        train(batch)
        time.sleep(options.seconds)
        step += 1
        notes.write(f"{step} {began} {time.time()} {os.getpid()} {socket.gethostname()}\n")
        tachoscope.step()
        if tachoscope.checkpoint_due(step, every=options.every) and rank == 0:
            save()
dist.destroy_process_group()
