"""What is trained: data parallel over gloo, with checkpoints; each rank notes its steps, which is the truth of the benchmark."""

from __future__ import annotations

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--every", type=int, required=True)
options = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
parallel = torch.nn.parallel.DistributedDataParallel(model)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(1 << 16, 64)), batch_size=16)
step = 0
if options.resume:
    state = torch.load(options.resume, weights_only=True)
    model.load_state_dict(state["model"])
    step = state["step"]
with open(f"steps-{rank}.txt", "a", buffering=1) as notes:
    for (batch,) in loader:
        began = time.time()
        parallel(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.1)
        step += 1
        notes.write(f"{step} {began} {time.time()} {os.getpid()} {socket.gethostname()}\n")
        if step % options.every == 0 and rank == 0:
            torch.save({"model": model.state_dict(), "step": step}, f"checkpoint-{step}.pt")
        if step >= options.steps:
            break
dist.destroy_process_group()
